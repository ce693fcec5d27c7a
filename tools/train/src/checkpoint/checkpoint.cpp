#include <checkpoint/checkpoint.hpp>
#include <data/random.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace train {
namespace {

constexpr std::string_view magic = "COXTRAIN";
constexpr std::string_view extension = ".checkpoint";
constexpr std::size_t kept = 2;

/// A file descriptor that is closed on every path.
class File {
 public:
  File(const std::filesystem::path& path, int flags) : path_(path), descriptor_(::open(path.c_str(), flags, 0644)) {
    if (descriptor_ < 0) fail("open");
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() { ::close(descriptor_); }

  void write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail("write");
      bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
  }
  void flush() {
    if (::fsync(descriptor_) != 0) fail("flush");
  }

 private:
  [[noreturn]] void fail(const char* what) const {
    throw std::system_error(errno, std::generic_category(), std::string("cannot ") + what + " " + path_.string());
  }

  std::filesystem::path path_;
  int descriptor_;
};

class Writer {
 public:
  explicit Writer(File& file) : file_(file) {}

  void bytes(std::span<const std::byte> data) {
    sum_ = checksum(data, sum_);
    file_.write(data);
  }
  void number(std::uint64_t value) { bytes(std::as_bytes(std::span(&value, 1))); }
  void block(std::span<const std::byte> data) {
    number(data.size());
    bytes(data);
  }
  void text(std::string_view value) { block(std::as_bytes(std::span(value))); }
  [[nodiscard]] std::uint64_t sum() const { return sum_; }

 private:
  File& file_;
  std::uint64_t sum_ = 0;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> data) : data_(data) {}

  [[nodiscard]] std::span<const std::byte> bytes(std::uint64_t count) {
    if (count > data_.size()) throw std::runtime_error("is cut off");
    const auto taken = data_.first(static_cast<std::size_t>(count));
    data_ = data_.subspan(taken.size());
    sum_ = checksum(taken, sum_);
    return taken;
  }
  [[nodiscard]] std::uint64_t number() {
    std::uint64_t value = 0;
    std::memcpy(&value, bytes(sizeof(value)).data(), sizeof(value));
    return value;
  }
  [[nodiscard]] std::span<const std::byte> block() { return bytes(number()); }
  [[nodiscard]] std::string text() {
    const auto data = block();
    return {reinterpret_cast<const char*>(data.data()), data.size()};
  }
  [[nodiscard]] std::uint64_t sum() const { return sum_; }

 private:
  std::span<const std::byte> data_;
  std::uint64_t sum_ = 0;
};

std::string file_name(std::uint64_t step, const CheckpointRanks& ranks) {
  std::array<char, 32> name{};
  std::snprintf(name.data(), name.size(), "step-%010llu", static_cast<unsigned long long>(step));
  std::string text = name.data();
  if (ranks.count != ranks.of)
    text += ".ranks-" + std::to_string(ranks.first) + "-" + std::to_string(ranks.first + ranks.count - 1) + "-of-" +
            std::to_string(ranks.of);
  return text + std::string(extension);
}

/// A file of a checkpoint.
struct CheckpointFile {
  std::filesystem::path path;
  std::uint64_t step = 0;
  CheckpointRanks ranks;
};

std::optional<CheckpointFile> file_of(const std::filesystem::path& path) {
  unsigned long long step = 0;
  CheckpointFile file{path, 0, {}};
  std::size_t last = 0;
  if (std::sscanf(path.filename().c_str(), "step-%llu.ranks-%zu-%zu-of-%zu", &step, &file.ranks.first, &last,
                  &file.ranks.of) == 4 &&
      last >= file.ranks.first)
    file.ranks.count = last - file.ranks.first + 1;
  file.step = step;
  if (path.filename() != file_name(file.step, file.ranks)) return std::nullopt;
  return file;
}

/// The files of the folder, by step.
std::map<std::uint64_t, std::vector<CheckpointFile>> checkpoint_files(const std::filesystem::path& folder) {
  std::map<std::uint64_t, std::vector<CheckpointFile>> files;
  if (!std::filesystem::is_directory(folder)) return files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (auto file = file_of(entry.path())) files[file->step].push_back(std::move(*file));
  return files;
}

/// Files of a step that together have each rank once; empty if some ranks are missing. After a restart with other
/// processes there can be several ways; all have the same contents.
std::vector<std::filesystem::path> complete_files(std::vector<CheckpointFile> files) {
  std::ranges::sort(files, {}, [](const CheckpointFile& file) { return file.ranks.first; });
  std::map<std::pair<std::size_t, std::size_t>, std::vector<std::filesystem::path>> reached;  // by count of all, rank
  for (const CheckpointFile& file : files) {
    const auto before = reached.find({file.ranks.of, file.ranks.first});
    if (file.ranks.first != 0 && before == reached.end()) continue;
    std::vector<std::filesystem::path> paths;
    if (file.ranks.first != 0) paths = before->second;
    paths.push_back(file.path);
    const std::size_t end = file.ranks.first + file.ranks.count;
    if (end == file.ranks.of) return paths;
    reached.emplace(std::pair(file.ranks.of, end), std::move(paths));
  }
  return {};
}

void remove_old(const std::filesystem::path& folder) {
  const auto files = checkpoint_files(folder);
  std::size_t complete = 0;
  for (auto step = files.rbegin(); step != files.rend(); ++step) {
    if (complete == kept)
      for (const CheckpointFile& file : step->second) std::filesystem::remove(file.path);
    else if (!complete_files(step->second).empty())
      ++complete;
  }
}

// Throws std::runtime_error, with the end of a sentence, if the contents are damaged.
Checkpoint parse(std::span<const std::byte> content, std::uint64_t& version) {
  Reader reader(content);
  const auto begin = reader.bytes(magic.size());
  if (std::memcmp(begin.data(), magic.data(), magic.size()) != 0) throw std::runtime_error("is no checkpoint");
  version = reader.number();
  Checkpoint result;
  if (version != Checkpoint::version) return result;
  result.fingerprint = reader.text();
  result.step = reader.number();
  const auto losses = reader.block();
  result.losses.resize(losses.size() / sizeof(float));
  std::ranges::copy(losses.first(result.losses.size() * sizeof(float)),
                    std::as_writable_bytes(std::span(result.losses)).begin());
  for (std::uint64_t left = reader.number(); left > 0; --left) {
    std::string name = reader.text();
    result.tensors.emplace(std::move(name), cox::Bytes::copy_of(reader.block()));
  }
  const std::uint64_t expected = reader.sum();
  if (reader.number() != expected) throw std::runtime_error("has a wrong checksum");
  return result;
}

}  // namespace

std::uint64_t checksum(std::span<const std::byte> bytes, std::uint64_t seed) {
  std::uint64_t sum = mixed(seed ^ bytes.size());
  for (std::size_t i = 0; i < bytes.size(); i += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, std::min(sizeof(word), bytes.size() - i));
    sum = mixed(sum ^ word) + 0x9e3779b97f4a7c15U;
  }
  return sum;
}

void write_checkpoint(const std::filesystem::path& folder, const Checkpoint& checkpoint, CheckpointRanks ranks) {
  std::filesystem::create_directories(folder);
  const std::filesystem::path final_path = folder / file_name(checkpoint.step, ranks);
  std::filesystem::path temporary = final_path;
  temporary += ".temporary";
  {
    File file(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC);
    Writer writer(file);
    writer.bytes(std::as_bytes(std::span(magic)));
    writer.number(Checkpoint::version);
    writer.text(checkpoint.fingerprint);
    writer.number(checkpoint.step);
    writer.block(std::as_bytes(std::span(checkpoint.losses)));
    writer.number(checkpoint.tensors.size());
    for (const auto& [name, data] : checkpoint.tensors) {
      writer.text(name);
      writer.block(data.span());
    }
    writer.number(writer.sum());
    file.flush();
  }
  std::filesystem::rename(temporary, final_path);
  File(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC).flush();  // the new name itself
  remove_old(folder);
}

bool has_checkpoints(const std::filesystem::path& folder) { return !checkpoint_files(folder).empty(); }

namespace {

// std::nullopt if the file is damaged.
std::optional<Checkpoint> read_file(const std::filesystem::path& file, const std::string& fingerprint) {
  std::ifstream in(file, std::ios::binary);
  const std::vector<char> content{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  std::uint64_t version = 0;
  Checkpoint checkpoint;
  try {
    checkpoint = parse(std::as_bytes(std::span(content)), version);
  } catch (const std::runtime_error& error) {
    std::fprintf(stderr, "checkpoint %s %s; the one before it is used\n", file.c_str(), error.what());
    return std::nullopt;
  }
  if (version != Checkpoint::version)
    throw std::runtime_error(file.string() + " has version " + std::to_string(version) + " of the format; this is " +
                             std::to_string(Checkpoint::version));
  if (checkpoint.fingerprint != fingerprint)
    throw std::runtime_error(file.string() + " is of another run: " + checkpoint.fingerprint + "; this one is " +
                             fingerprint);
  return checkpoint;
}

std::optional<Checkpoint> read_files(const std::vector<std::filesystem::path>& files, const std::string& fingerprint) {
  std::optional<Checkpoint> all;
  for (const std::filesystem::path& file : files) {
    auto part = read_file(file, fingerprint);
    if (!part) return std::nullopt;
    if (!all) {
      all = std::move(part);  // that of rank 0, which has the losses
    } else {
      all->tensors.merge(part->tensors);
    }
  }
  return all;
}

}  // namespace

std::optional<Checkpoint> newest_checkpoint(const std::filesystem::path& folder, const std::string& fingerprint) {
  const auto files = checkpoint_files(folder);
  for (auto step = files.rbegin(); step != files.rend(); ++step)
    if (auto checkpoint = read_files(complete_files(step->second), fingerprint)) return checkpoint;
  return std::nullopt;
}

}  // namespace train
