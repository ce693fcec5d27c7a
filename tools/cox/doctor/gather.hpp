#pragma once

#include <coxswain/tools/cox/doctor/facts.hpp>

#include <optional>
#include <string>
#include <string_view>

namespace cox::tools {

/// Looks at the machine and at this process. Opens no device; what is not there is not an error. Throws ConfigError.
[[nodiscard]] Facts gather_facts();

// Its parts.
void gather_cuda(Facts& facts);
[[nodiscard]] LimitFacts gather_limits();

/// The word in brackets of "always [madvise] never"; empty if there is none.
[[nodiscard]] std::string chosen_word(std::string_view text);

/// How many cores' time "200000 100000" stands for, as in the file cpu.max of a control group: 2. None of "max 100000",
/// or if it is neither.
[[nodiscard]] std::optional<double> core_quota(std::string_view cpu_max);

}  // namespace cox::tools
