#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace cox::perf {

/// CPU time and context switches, of one thread or summed over several.
struct ThreadCost {
  std::chrono::nanoseconds cpu{0};
  std::uint64_t voluntary_switches = 0;
  std::uint64_t involuntary_switches = 0;

  ThreadCost& operator+=(const ThreadCost& other);
  ThreadCost operator-(const ThreadCost& earlier) const;
};

/// Cost so far of the thread with this id; zero if the thread has ended.
ThreadCost cost_of_thread(pid_t thread);

/// Cost so far of all threads of this process except the calling thread.
ThreadCost cost_of_other_threads();

/// CPU time of the calling thread so far.
std::chrono::nanoseconds own_cpu_time();

/// Current resident set size of this process, in bytes.
std::size_t resident_bytes();

/// Peak resident set size of this process, in bytes.
std::size_t peak_resident_bytes();

}  // namespace cox::perf
