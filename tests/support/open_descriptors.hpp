#pragma once

#include <fcntl.h>

#include <cstddef>

namespace cox::test {

/// How many file descriptors the process has open, of the first few thousand.
inline std::size_t open_descriptors() {
  std::size_t count = 0;
  for (int i = 0; i < 4096; ++i) count += fcntl(i, F_GETFD) >= 0 ? 1U : 0U;
  return count;
}

}  // namespace cox::test
