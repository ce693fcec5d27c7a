// A checkpoint that was cut off or changed at any byte is found to be damaged, and the one before it is used.

#include <checkpoint/checkpoint.hpp>

#include <require.hpp>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

train::Checkpoint sample(std::uint64_t step) {
  train::Checkpoint checkpoint{"a run", step, {3.0F, 2.5F}, {}};
  checkpoint.tensors["weight"] = cox::Bytes::from_vector(std::vector<char>(13, static_cast<char>(step)));
  checkpoint.tensors["bias"] = {};
  return checkpoint;
}

std::string content_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

void replace(const std::filesystem::path& file, const std::string& content) {
  std::ofstream(file, std::ios::binary | std::ios::trunc) << content;
}

// The part of some ranks of four: a tensor for each.
train::Checkpoint part(std::uint64_t step, train::CheckpointRanks ranks) {
  train::Checkpoint checkpoint{"a run", step, {}, {}};
  if (ranks.first == 0) checkpoint.losses = {3.0F, 2.5F};
  for (std::size_t rank = ranks.first; rank < ranks.first + ranks.count; ++rank)
    checkpoint.tensors["weight/" + std::to_string(rank)] =
        cox::Bytes::from_vector(std::vector<char>(7, static_cast<char>(10 * step + rank)));
  return checkpoint;
}

std::size_t count_files(const std::filesystem::path& folder) {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) count += entry.is_regular_file() ? 1U : 0U;
  return count;
}

// Files of several processes: a checkpoint is complete when they have all ranks.
void check_parts(const std::filesystem::path& folder) {
  const auto write = [&](std::uint64_t step, std::size_t first, std::size_t count) {
    const train::CheckpointRanks ranks{first, count, 4};
    train::write_checkpoint(folder, part(step, ranks), ranks);
  };
  const auto newest = [&] {
    const auto found = train::newest_checkpoint(folder, "a run");
    return found ? found->step : 0;
  };
  write(1, 2, 2);
  require(train::has_checkpoints(folder) && newest() == 0, "half of the ranks are no checkpoint");
  write(1, 0, 2);
  const auto whole = train::newest_checkpoint(folder, "a run");
  require(whole && whole->losses == part(1, {0, 4, 4}).losses && whole->tensors == part(1, {0, 4, 4}).tensors,
          "the tensors of all files, and the losses of rank 0");
  // A process that is ahead does not remove what the other one still needs.
  for (std::uint64_t step = 2; step <= 5; ++step) write(step, 0, 2);
  require(newest() == 1, "steps that one process alone has written");
  // Other processes write the rest, two of them.
  write(5, 2, 1);
  require(newest() == 1, "three ranks of four");
  write(5, 3, 1);
  require(newest() == 5, "the ranks of three processes");
  write(4, 2, 2);
  require(newest() == 5 && count_files(folder) == 5, "two complete checkpoints are left");
  std::freopen("/dev/null", "w", stderr);  // the damaged file is reported there
  replace(folder / "step-0000000005.ranks-3-3-of-4.checkpoint", "COXTRAIN");
  require(newest() == 4, "one damaged file is enough to pass a checkpoint over");
  // One process that has all ranks writes a file as ever.
  train::write_checkpoint(folder, part(6, {0, 4, 4}), {0, 4, 4});
  require(std::filesystem::exists(folder / "step-0000000006.checkpoint") && newest() == 6, "all ranks in one file");
  std::filesystem::remove_all(folder);
}

}  // namespace

int main() {
  std::string parts_name = (std::filesystem::temp_directory_path() / "checkpoint_test.XXXXXX").string();
  require(mkdtemp(parts_name.data()) != nullptr, "no temporary folder");
  check_parts(parts_name);
  std::string folder_name = (std::filesystem::temp_directory_path() / "checkpoint_test.XXXXXX").string();
  require(mkdtemp(folder_name.data()) != nullptr, "no temporary folder");
  const std::filesystem::path folder = folder_name;
  require(!train::has_checkpoints(folder) && !train::newest_checkpoint(folder, "a run"), "an empty folder");

  for (std::uint64_t step = 1; step <= 4; ++step) train::write_checkpoint(folder, sample(step));
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) files.push_back(entry.path());
  require(files.size() == 2, "two checkpoints are kept, and no temporary file");

  const auto newest = train::newest_checkpoint(folder, "a run");
  require(newest && newest->step == 4 && newest->losses == sample(4).losses && newest->tensors == sample(4).tensors,
          "what was written is read");
  bool refused = false;
  try {
    static_cast<void>(train::newest_checkpoint(folder, "another run"));
  } catch (const std::runtime_error&) {
    refused = true;
  }
  require(refused, "a checkpoint of another run is refused");

  std::freopen("/dev/null", "w", stderr);  // each damaged file is reported there
  const std::filesystem::path last = folder / "step-0000000004.checkpoint";
  const std::string good = content_of(last);
  // From byte 16 on: before are the magic word and the version.
  for (std::size_t i = 16; i < good.size(); ++i) {
    std::string changed = good;
    changed[i] = static_cast<char>(changed[i] ^ 0x10);
    for (const std::string& damaged : {changed, good.substr(0, i)}) {
      replace(last, damaged);
      std::optional<train::Checkpoint> found;
      try {
        found = train::newest_checkpoint(folder, "a run");
      } catch (const std::runtime_error&) {
      }
      if (!found || found->step != 3) {
        std::printf("byte %zu of %zu\n", i, good.size());
        return 1;
      }
    }
  }
  replace(last, good);
  require(train::newest_checkpoint(folder, "a run")->step == 4, "the undamaged file is read again");
  std::filesystem::remove_all(folder);
  std::puts("ok");
  return 0;
}
