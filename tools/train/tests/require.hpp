#pragma once

#include <cstdio>
#include <cstdlib>
#include <source_location>

/// Ends the test with the line of the call unless `so` is true.
inline void require(bool so, const char* what, std::source_location site = std::source_location::current()) {
  if (so) return;
  std::fprintf(stderr, "%s:%u: %s\n", site.file_name(), static_cast<unsigned>(site.line()), what);
  std::exit(1);
}
