#pragma once

#include <exception>
#include <string>

namespace train {

/// The typed errors among `error` and its causes, for a report: "CollectiveError rank_failed, LaunchError kernel_failed".
/// Empty if there is none of the library's.
[[nodiscard]] std::string failure_kinds(const std::exception_ptr& error);

}  // namespace train
