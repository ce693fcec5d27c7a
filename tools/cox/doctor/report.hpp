#pragma once

#include <coxswain/tools/cox/doctor/facts.hpp>
#include <coxswain/tools/cox/doctor/finding.hpp>

#include <ostream>
#include <string>

namespace cox::tools {

/// Whether nothing is wrong; warnings do not count.
[[nodiscard]] bool all_passed(const Findings& findings) noexcept;

/// A line for each finding, with its fix below, the matrix of peers if there are two GPUs or more, and the upshot.
void write_doctor_table(const Facts& facts, const Findings& findings, std::ostream& out);

/// {"ok", "findings": [{"severity", "subject", "text", "fix"}], "gpus": [...], "peers": [[null or {"access",
/// "rank"}]]}.
[[nodiscard]] std::string doctor_json(const Facts& facts, const Findings& findings);

}  // namespace cox::tools
