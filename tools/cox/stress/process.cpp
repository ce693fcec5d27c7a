#include <coxswain/tools/cox/stress/process.hpp>

#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

namespace cox::stress {

std::uint64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::uint64_t total = 0;
  std::uint64_t resident = 0;
  if (!(statm >> total >> resident)) return 0;
  return resident * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

std::uint64_t peak_resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
}

std::vector<std::string> thread_names() {
  std::vector<std::string> names;
  std::error_code error;
  std::filesystem::directory_iterator entries("/proc/self/task", error);
  for (; !error && entries != std::filesystem::directory_iterator(); entries.increment(error)) {
    std::string name;
    std::getline(std::ifstream(entries->path() / "comm"), name);
    // The CUDA driver names its threads "cuda..." and does not end them. NCCL keeps one thread, with a name set by us.
    if (name != "cox-watchdog" && !name.starts_with("cuda") && name != "nccl") names.push_back(std::move(name));
  }
  return names;
}

std::size_t thread_count() {
  static const bool started_one = (std::thread([] {}).join(), true);
  static_cast<void>(started_one);
  return thread_names().size();
}

std::size_t settled_thread_count(std::size_t count) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  std::size_t threads = thread_count();
  while (threads > count && std::chrono::steady_clock::now() < end) {
    std::this_thread::yield();
    threads = thread_count();
  }
  return threads;
}

}  // namespace cox::stress
