#pragma once

#include <coxswain/servers/cuda/driver/gpu_fault.hpp>

#include <string>

namespace cox::detail {

/// The fault as a JSON object: exit_code, time (UTC), pid, code, name, call, text, suspects. See docs/operations.md.
[[nodiscard]] std::string fault_json(const GpuFault& fault);

/// Writes fault_json() to the file atomically: to a temporary file next to `path`, which is then renamed to it. Returns
/// an empty string, or an error text.
[[nodiscard]] std::string write_fault_file(const GpuFault& fault, const std::string& path);

}  // namespace cox::detail
