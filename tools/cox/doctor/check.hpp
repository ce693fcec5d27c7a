#pragma once

#include <coxswain/tools/cox/doctor/facts.hpp>
#include <coxswain/tools/cox/doctor/finding.hpp>

namespace cox::tools {

/// All findings about `facts`, in the order of the report.
[[nodiscard]] Findings check(const Facts& facts);

// The parts of check(). Each appends its findings. Without a driver there are no findings about GPUs, and NVRTC and
// NCCL are reported only if they were found or a setting names them; the driver's finding says what is missing.
void check_libraries(const Facts& facts, Findings& findings);
void check_gpus(const Facts& facts, Findings& findings);
void check_limits(const Facts& facts, Findings& findings);
void check_environment(const Facts& facts, Findings& findings);

}  // namespace cox::tools
