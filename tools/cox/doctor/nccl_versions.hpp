#pragma once

#include <string_view>

namespace cox::tools {

/// What is wrong with that version of NCCL, in one line; empty if nothing is known. `arm`: on such a processor.
[[nodiscard]] std::string_view known_issue(int nccl_version, bool arm) noexcept;

}  // namespace cox::tools
