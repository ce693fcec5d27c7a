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

}  // namespace

int main() {
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
