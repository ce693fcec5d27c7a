#pragma once

#include <cstdint>

namespace cox::perf {

/// Blocks that all threads of this process took from the heap while one of these lived: malloc and its kin, and so
/// operator new. Not under sanitizers, which have a malloc of their own: there it counts nothing.
class AllocationCount {
 public:
  AllocationCount();
  ~AllocationCount();
  AllocationCount(const AllocationCount&) = delete;
  AllocationCount& operator=(const AllocationCount&) = delete;

  std::uint64_t so_far() const;
};

}  // namespace cox::perf
