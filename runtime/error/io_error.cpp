#include <coxswain/runtime/base/byte_count.hpp>
#include <coxswain/runtime/error/io_error.hpp>

#include <array>

namespace cox {

IoError IoError::out_of_memory(const Location& location, Sizes sizes, std::source_location site,
                               const std::string& report) {
  const std::string brief = "out of memory: cannot allocate " + format_byte_count(sizes.requested) + " on " +
                            location.to_string() + ": " + format_byte_count(sizes.in_use) + " of " +
                            format_byte_count(sizes.capacity) + " are in use";
  IoError error{Kind::OutOfMemory, report.empty() ? brief : brief + "; " + report, site, nullptr, sizes};
  error.brief_length_ = brief.size();
  return error;
}

IoError IoError::buffer_too_big(const Location& location, Sizes sizes, std::source_location site) {
  return {Kind::BufferTooBig,
          "buffer too big: " + format_byte_count(sizes.requested) + " can never fit on " + location.to_string() +
              ", whose capacity is " + format_byte_count(sizes.capacity),
          site, nullptr, sizes};
}

IoError IoError::out_of_host_memory(std::size_t bytes, std::source_location site) {
  return {Kind::OutOfHostMemory, "out of host memory: the process could not get " + format_byte_count(bytes), site,
          nullptr, Sizes{.requested = bytes, .in_use = 0, .capacity = 0}};
}

const char* to_string(IoError::Kind kind) noexcept {
  static constexpr std::array names{"buffer_too_big",  "out_of_memory",     "out_of_host_memory", "unsupported_strides",
                                    "rank_mismatch",   "element_size",      "size_mismatch",      "out_of_bounds",
                                    "not_found",       "allocation_failed", "poisoned",           "wrong_device",
                                    "stale_handle",    "file_unreadable",   "file_too_short",     "would_copy",
                                    "invalid_pointer", "misaligned"};
  static_assert(names.size() == static_cast<std::size_t>(IoError::Kind::Misaligned) + 1);
  return names[static_cast<std::size_t>(kind)];
}

}  // namespace cox
