#pragma once

namespace cox::test {

/// Every test program counts what operator new hands out, and can make it fail. Of the calling thread: counts down at
/// each allocation; at 0 that one throws std::bad_alloc. Negative: none does.
extern constinit thread_local int allocations_until_failure;

/// Of the calling thread: allocations of the libraries that stand in for CUDA and NCCL, and of what they call, neither
/// count nor fail. That takes some microseconds for each allocation while there is a countdown.
extern constinit thread_local bool stand_ins_have_memory;

/// Blocks of operator new that are alive, of all threads.
[[nodiscard]] long live_blocks() noexcept;

/// Whether the countdown has come to its end with this step; for steps that are not allocations.
[[nodiscard]] bool fails_now() noexcept;

}  // namespace cox::test
