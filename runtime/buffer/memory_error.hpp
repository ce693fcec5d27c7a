#pragma once

#include <coxswain/runtime/base/location.hpp>
#include <coxswain/runtime/error/io_error.hpp>
#include <coxswain/runtime/memory/memory_report.hpp>

#include <cstddef>
#include <source_location>

namespace cox {

/// Why an allocation of `size` bytes failed: BufferTooBig, or OutOfMemory with the whole picture.
[[nodiscard]] IoError allocation_error(const Location& location, std::size_t size, const MemoryReport& report,
                                       std::source_location site);

}  // namespace cox
