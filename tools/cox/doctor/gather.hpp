#pragma once

#include <coxswain/tools/cox/doctor/facts.hpp>

#include <optional>
#include <string>
#include <string_view>

namespace cox::tools {

/// Collects the facts about the machine and this process. Opens no device. A missing library or device is not an error.
/// Throws ConfigError.
[[nodiscard]] Facts gather_facts();

// The parts of gather_facts().
void gather_cuda(Facts& facts);
[[nodiscard]] LimitFacts gather_limits();

/// The word in brackets of a text such as "always [madvise] never"; empty if there is none.
[[nodiscard]] std::string chosen_word(std::string_view text);

/// The CPU time limit in the file cpu.max of a control group, in cores: 2 for "200000 100000". Returns nullopt for
/// "max 100000" (no limit) and for text of another form.
[[nodiscard]] std::optional<double> core_quota(std::string_view cpu_max);

}  // namespace cox::tools
