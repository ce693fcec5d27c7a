#pragma once

#include <coxswain/runtime/base/location.hpp>
#include <coxswain/runtime/error/io_error.hpp>
#include <coxswain/runtime/memory/memory_report.hpp>

#include <cstddef>
#include <source_location>

namespace cox {

/// The error for an allocation of `size` bytes that failed: BufferTooBig if it exceeds the capacity, else OutOfMemory
/// with the report in its text. Writes the report to the log.
[[nodiscard]] IoError allocation_error(const Location& location, std::size_t size, const MemoryReport& report,
                                       std::source_location site);

}  // namespace cox
