#pragma once

#include <coxswain/servers/cuda/driver/gpu_fault.hpp>

#include <string>

namespace cox::detail {

/// The fault as a JSON object: exit_code, time (UTC), pid, code, name, call, text, suspects. docs/operations.md.
[[nodiscard]] std::string fault_json(const GpuFault& fault);

/// Writes that to the file, which shows with all of it or not at all: it is written beside `path`, then renamed.
/// Returns an empty string, or what went wrong.
[[nodiscard]] std::string write_fault_file(const GpuFault& fault, const std::string& path);

}  // namespace cox::detail
