#pragma once

#include <coxswain/perf/harness/suite.hpp>
#include <coxswain/perf/recovery/recovery_options.hpp>

#include <vector>

namespace cox::perf {

/// Fails a program with kept memory under `cox run` in each of the ways, --rounds times each. Returns one row for each
/// way, its contenders being the phases, in ms; prints each as it is complete. Blocks. Throws std::runtime_error if
/// anything takes longer than --timeout, if a worker fails otherwise, or if a state is reported wrongly; `rows` then
/// has the complete rows.
void measure_recovery(const RecoveryOptions& options, std::vector<Row>& rows);

}  // namespace cox::perf
