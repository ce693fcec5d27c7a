#pragma once

#include <coxswain/tools/cox/doctor/facts.hpp>
#include <coxswain/tools/cox/doctor/finding.hpp>

#include <ostream>
#include <string>

namespace cox::tools {

/// Whether no finding is Wrong. Warnings do not count.
[[nodiscard]] bool all_passed(const Findings& findings) noexcept;

/// Writes a line for each finding, with its fix on the next line, the peer access matrix if there are at least two
/// GPUs, and the numbers of wrong findings and warnings.
void write_doctor_table(const Facts& facts, const Findings& findings, std::ostream& out);

/// {"ok", "findings": [{"severity", "subject", "text", "fix"}], "gpus": [...], "peers": [[null or {"access",
/// "rank"}]]}.
[[nodiscard]] std::string doctor_json(const Facts& facts, const Findings& findings);

}  // namespace cox::tools
