#pragma once

#include <coxswain/perf/harness/suite.hpp>

#include <string>
#include <vector>

namespace cox::perf {

/// Prints one row as an aligned table: contender, median, min, max, and the ratio to ours.
void print_table(const Row& row);

/// Writes the rows as a JSON array. Throws std::runtime_error if the file cannot be written.
void write_json(const std::string& path, const std::vector<Row>& rows, const Options& options);

}  // namespace cox::perf
