#pragma once

#include <cstddef>
#include <cstdint>

namespace cox::stress {

/// Bytes of physical memory that this process has now; 0 if the system does not say.
[[nodiscard]] std::uint64_t resident_bytes();
/// The most it ever had, in bytes.
[[nodiscard]] std::uint64_t peak_resident_bytes();
/// Threads of this process, with those that a sanitizer starts along with the first of ours, without those that look
/// after the deadlines of collectives: they are no device's, and end when the last deadline has come.
[[nodiscard]] std::size_t thread_count();
/// Looks until there are at most `count` threads, for a second: one that was joined may be listed a moment longer.
/// Returns how many there are.
[[nodiscard]] std::size_t settled_thread_count(std::size_t count);

}  // namespace cox::stress
