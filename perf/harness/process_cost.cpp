#include <coxswain/perf/harness/process_cost.hpp>

#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <string>

namespace cox::perf {

ThreadCost& ThreadCost::operator+=(const ThreadCost& other) {
  cpu += other.cpu;
  voluntary_switches += other.voluntary_switches;
  involuntary_switches += other.involuntary_switches;
  return *this;
}

ThreadCost ThreadCost::operator-(const ThreadCost& earlier) const {
  return {.cpu = cpu - earlier.cpu,
          .voluntary_switches = voluntary_switches - earlier.voluntary_switches,
          .involuntary_switches = involuntary_switches - earlier.involuntary_switches};
}

ThreadCost cost_of_thread(pid_t thread) {
  const std::string folder = "/proc/self/task/" + std::to_string(thread);
  ThreadCost cost;
  std::int64_t on_cpu = 0;
  if (std::ifstream(folder + "/schedstat") >> on_cpu) cost.cpu = std::chrono::nanoseconds(on_cpu);
  std::ifstream status(folder + "/status");
  for (std::string word; status >> word;) {
    if (word == "voluntary_ctxt_switches:") status >> cost.voluntary_switches;
    if (word == "nonvoluntary_ctxt_switches:") status >> cost.involuntary_switches;
  }
  return cost;
}

ThreadCost cost_of_other_threads() {
  ThreadCost sum;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    const auto thread = static_cast<pid_t>(std::stol(entry.path().filename()));
    if (thread != gettid()) sum += cost_of_thread(thread);
  }
  return sum;
}

std::chrono::nanoseconds own_cpu_time() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

std::size_t resident_bytes() {
  std::size_t total = 0;
  std::size_t resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

std::size_t peak_resident_bytes() {
  // getrusage() is not used: its maximum is kept across exec, so it can include another program.
  std::ifstream status("/proc/self/status");
  std::size_t kibibytes = 0;
  for (std::string word; status >> word;) {
    if (word == "VmHWM:") status >> kibibytes;
  }
  return kibibytes * 1024;
}

}  // namespace cox::perf
