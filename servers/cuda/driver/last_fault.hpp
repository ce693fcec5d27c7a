#pragma once

#include <optional>
#include <string>

namespace cox {

/// The fault report of the previous run, as JSON (docs/operations.md), in a program that `cox run` has restarted after
/// a GPU fault; std::nullopt otherwise. Reads a file. Any thread, at any time of the run.
[[nodiscard]] std::optional<std::string> last_gpu_fault();

}  // namespace cox
