#pragma once

#include <optional>
#include <string>

namespace cox {

/// In a program that `cox run` has started again after a GPU fault: the report of the run before, as JSON
/// (docs/operations.md). Nothing in all other cases. Reads a file; any thread, at any time of the run.
[[nodiscard]] std::optional<std::string> last_gpu_fault();

}  // namespace cox
