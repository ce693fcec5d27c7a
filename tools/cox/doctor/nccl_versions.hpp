#pragma once

#include <string_view>

namespace cox::tools {

/// The known issue of an NCCL version, in one line; empty if none is known. `arm`: the machine has an ARM processor.
[[nodiscard]] std::string_view known_issue(int nccl_version, bool arm) noexcept;

}  // namespace cox::tools
