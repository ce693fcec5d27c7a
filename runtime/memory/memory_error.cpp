#include <coxswain/runtime/memory/memory_error.hpp>

#include <string>

namespace cox {

IoError allocation_error(const Place& place, std::size_t size, const MemoryReport& report, std::source_location site) {
  const IoError::Sizes sizes{
      .requested = size, .in_use = report.usage.bytes_in_use + report.usage.bytes_padding, .capacity = report.capacity};
  if (size > report.capacity) return IoError::buffer_too_big(place, sizes, site);
  const std::string what = IoError::out_of_memory(place, sizes, site).what();
  return {IoError::Kind::OutOfMemory, what + "; " + to_string(report), site, nullptr, sizes};
}

}  // namespace cox
