#include <coxswain/perf/harness/machine.hpp>

#include <sched.h>

#include <fstream>

namespace cox::perf {

namespace {

bool word_in(const std::string& path, const std::string& prefix, const std::string& word) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(prefix)) return (line + ' ').find(word) != std::string::npos;
  }
  return false;
}

}  // namespace

Machine this_machine() {
  cpu_set_t set;
  CPU_ZERO(&set);
  Machine machine;
  if (sched_getaffinity(0, sizeof set, &set) == 0) machine.cores = static_cast<unsigned>(CPU_COUNT(&set));
  machine.invariant_tsc = word_in("/proc/cpuinfo", "flags", " nonstop_tsc ") &&
                          word_in("/proc/cpuinfo", "flags", " constant_tsc ") &&
                          word_in("/sys/devices/system/clocksource/clocksource0/available_clocksource", "", "tsc ");
  return machine;
}

std::string describe(const Machine& machine) {
#if defined(__clang__)
  const std::string compiler = "clang " __clang_version__;
#else
  const std::string compiler = "g++ " __VERSION__;
#endif
  return std::to_string(machine.cores) + " cores, " + (machine.invariant_tsc ? "invariant TSC" : "no invariant TSC") +
         ", " + compiler;
}

}  // namespace cox::perf
