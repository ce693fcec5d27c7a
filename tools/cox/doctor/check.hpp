#pragma once

#include <coxswain/tools/cox/doctor/facts.hpp>
#include <coxswain/tools/cox/doctor/finding.hpp>

namespace cox::tools {

/// What there is to say of the facts: all of it, in the order of the report.
[[nodiscard]] Findings check(const Facts& facts);

// Its parts, which add theirs. Without a driver there is nothing to say of GPUs, and of libraries only that they are
// there: one line tells what is missing.
void check_libraries(const Facts& facts, Findings& findings);
void check_gpus(const Facts& facts, Findings& findings);
void check_limits(const Facts& facts, Findings& findings);
void check_environment(const Facts& facts, Findings& findings);

}  // namespace cox::tools
