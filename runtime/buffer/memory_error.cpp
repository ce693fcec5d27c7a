#include <coxswain/runtime/buffer/memory_error.hpp>

#include <coxswain/runtime/base/byte_count.hpp>
#include <coxswain/runtime/error/log.hpp>

#include <string>

namespace cox {

IoError allocation_error(const Location& location, std::size_t size, const MemoryReport& report,
                         std::source_location site) {
  const IoError::Sizes sizes{
      .requested = size, .in_use = report.usage.bytes_in_use + report.usage.bytes_padding, .capacity = report.capacity};
  log::write(LogSubsystem::Memory, LogLevel::Info, [&] {
    return "no room for " + format_byte_count(size) + " on " + location.to_string() + ": " + to_string(report);
  });
  if (size > report.capacity) return IoError::buffer_too_big(location, sizes, site);
  return IoError::out_of_memory(location, sizes, site, to_string(report));
}

}  // namespace cox
