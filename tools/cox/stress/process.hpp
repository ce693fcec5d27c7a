#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace cox::stress {

/// Physical memory of this process now, in bytes; 0 if the system does not report it.
[[nodiscard]] std::uint64_t resident_bytes();
/// Peak of the physical memory of this process, in bytes.
[[nodiscard]] std::uint64_t peak_resident_bytes();
/// Number of threads of this process. Includes the threads that a sanitizer starts together with our first thread.
/// Excludes the watchdog threads of collective deadlines, which belong to no device and end after the last deadline,
/// and the threads of the CUDA driver and NCCL.
[[nodiscard]] std::size_t thread_count();
/// The system's names of the threads that thread_count() counts.
[[nodiscard]] std::vector<std::string> thread_names();
/// Polls for up to one second until there are at most `count` threads, because a joined thread may be listed a moment
/// longer. Returns the last number of threads.
[[nodiscard]] std::size_t settled_thread_count(std::size_t count);

}  // namespace cox::stress
