#pragma once

#include <exception>
#include <string>

namespace train {

/// The errors of the library among `error` and its causes, for a report: "CollectiveError rank_failed, LaunchError
/// kernel_failed". Empty if there is none.
[[nodiscard]] std::string failure_kinds(const std::exception_ptr& error);

}  // namespace train
