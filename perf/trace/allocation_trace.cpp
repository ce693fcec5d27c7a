#include <coxswain/perf/trace/allocation_trace.hpp>

#include <zlib.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <unordered_map>

namespace cox::perf {
namespace {

struct Close {
  void operator()(gzFile_s* file) const noexcept { gzclose(file); }
};

/// Turns lines into events, with numbers of our own for what is alive.
class Reader {
 public:
  explicit Reader(AllocationTrace& trace) : trace_(trace) {}

  /// Returns whether the line means something.
  bool line(const std::string& text) {
    std::istringstream in(text);
    char operation = 0;
    std::uint64_t id = 0;
    if (!(in >> operation >> id)) return false;
    if (operation == 'f') {
      const auto found = alive_.find(id);
      if (found == alive_.end()) return false;
      trace_.events.push_back({found->second, 0, 0});
      alive_.erase(found);
      return true;
    }
    std::size_t bytes = 0;
    std::uint32_t stream = 0;
    if (operation != 'a' || !(in >> bytes >> stream)) return false;
    const auto number = static_cast<std::uint32_t>(trace_.allocations);
    if (!alive_.emplace(id, number).second) return false;
    ++trace_.allocations;
    trace_.streams = std::max(trace_.streams, stream + 1);
    trace_.events.push_back({number, stream, std::max<std::size_t>(bytes, 1)});
    return true;
  }

 private:
  AllocationTrace& trace_;
  std::unordered_map<std::uint64_t, std::uint32_t> alive_;
};

}  // namespace

std::size_t AllocationTrace::peak() const {
  std::vector<std::size_t> sizes(allocations);
  std::size_t now = 0;
  std::size_t most = 0;
  for (const Event& event : events) {
    std::size_t& size = sizes[event.allocation];
    if (event.bytes == 0) {
      now -= size;
    } else {
      size = event.bytes;
      most = std::max(most, now += size);
    }
  }
  return most;
}

AllocationTrace read_trace(const std::string& path) {
  const std::unique_ptr<gzFile_s, Close> file(gzopen(path.c_str(), "rb"));  // reads plain files too
  if (file == nullptr) throw std::runtime_error("cannot open the trace " + path);
  AllocationTrace trace;
  trace.name = std::filesystem::path(path).filename().string();
  Reader reader(trace);
  std::array<char, 256> text{};
  for (std::size_t number = 1; gzgets(file.get(), text.data(), static_cast<int>(text.size())) != nullptr; ++number) {
    if (!reader.line(text.data())) {
      throw std::runtime_error(
          path + ":" + std::to_string(number) +
          ": expected \"a ID BYTES STREAM\" with a new ID, or \"f ID\" with the ID of a live allocation");
    }
  }
  int error = Z_OK;
  const char* const why = gzerror(file.get(), &error);
  if (error != Z_OK) throw std::runtime_error("cannot read the trace " + path + ": " + why);
  return trace;
}

}  // namespace cox::perf
