#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace cox::tools {

/// The trace of one process, as trace::write_chrome_trace writes it.
struct ProcessTrace {
  std::string file;  ///< for errors
  nlohmann::json json;
};

/// Joins the traces of the processes of a world into one: their times on the clock of the leader, from the beginning of
/// the first, and the devices and threads of each process under its number. Throws std::runtime_error, which names the
/// file, if a trace is no such trace or two are of the same process.
[[nodiscard]] nlohmann::json merge_traces(std::vector<ProcessTrace> traces);

}  // namespace cox::tools
