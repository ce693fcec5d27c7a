#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace cox::stress {

/// Bytes of physical memory that this process has now; 0 if the system does not say.
[[nodiscard]] std::uint64_t resident_bytes();
/// The most it ever had, in bytes.
[[nodiscard]] std::uint64_t peak_resident_bytes();
/// Threads of this process, with those that a sanitizer starts along with the first of ours, without those that look
/// after the deadlines of collectives, which are no device's and end when the last deadline has come, and without those
/// of the CUDA driver.
[[nodiscard]] std::size_t thread_count();
/// What the system calls them.
[[nodiscard]] std::vector<std::string> thread_names();
/// Looks until there are at most `count` threads, for a second: one that was joined may be listed a moment longer.
/// Returns how many there are.
[[nodiscard]] std::size_t settled_thread_count(std::size_t count);

}  // namespace cox::stress
