// Many processes with one host device each: what a process of a world costs in memory, and in messages while it is idle
// and for each operation. `program_world_scale 64` prints that for 64 processes; the default is fewer.

#include <coxswain/tests/programs/world_processes.hpp>

#include <coxswain/collectives/world/world.hpp>
#include <coxswain/device_handle/base/shutdown.hpp>
#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/servers/host/server/host_server.hpp>

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

namespace {

std::atomic<std::uint64_t> sent_calls{0};
std::atomic<std::uint64_t> sent_bytes{0};

}  // namespace

// Stands in for that of the C library, with which the library sends all messages of a world.
extern "C" ssize_t send(int socket, const void* bytes, std::size_t count, int flags) {
  const auto sent = static_cast<ssize_t>(::syscall(SYS_sendto, socket, bytes, count, flags, nullptr, 0));
  if (sent > 0) {
    sent_calls.fetch_add(1, std::memory_order_relaxed);
    sent_bytes.fetch_add(static_cast<std::uint64_t>(sent), std::memory_order_relaxed);
  }
  return sent;
}

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t operations = 50;
constexpr std::chrono::seconds idle_for{3};
constexpr std::size_t elements = 8;

struct Sent {
  double calls = static_cast<double>(sent_calls.load(std::memory_order_relaxed));
  double bytes = static_cast<double>(sent_bytes.load(std::memory_order_relaxed));
};

// KiB; 0: the kernel does not say so.
double memory(const char* file, const std::string& name) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(name + ":")) return std::stod(line.substr(name.size() + 1));
  return 0;
}
double threads() { return memory("/proc/self/status", "Threads"); }

void idle() {
  std::mutex mutex;
  std::condition_variable none;
  std::unique_lock lock(mutex);
  static_cast<void>(none.wait_for(lock, idle_for, [] { return false; }));
}

int work() {
  const auto began = Clock::now();
  cox::World world = cox::World::join({{cox::host_device_type, 0}});
  const double joined = std::chrono::duration<double>(Clock::now() - began).count();
  const auto client = cox::HostClient::load({cox::host_device_type, 0});
  const cox::CommunicationId all(world.devices(cox::host_device_type));
  const cox::Handle values = client.create(cox::Bytes::from_vector(std::vector<float>(elements, 1.0F)));
  const cox::Handle sums = client.empty(elements * sizeof(float));
  const auto sum = [&] {
    client.all_reduce(values, sums, cox::ElementType::F32, all);
    return client.read_one(sums).to_vector<float>().back() == static_cast<float>(world.size());
  };
  if (!sum()) return 1;
  const Sent before;
  const auto first = Clock::now();
  for (std::uint64_t i = 0; i < operations; ++i)
    if (!sum()) return 1;
  const double seconds = std::chrono::duration<double>(Clock::now() - first).count();
  const Sent after;
  if (world.size() > 1 && after.calls == before.calls) {
    std::fprintf(stderr, "no message was counted: the library sends them by another function\n");
    return 1;
  }
  idle();
  const Sent rest;
  if (!sum()) return 1;  // nobody leaves before all have counted
  const double idle_seconds = std::chrono::duration<double>(idle_for).count();
  std::printf(
      "facts %u %g %g %g %g %g %g %g %g %g %g\n", unsigned{world.process()}, joined,
      memory("/proc/self/status", "VmRSS") / 1024, memory("/proc/self/smaps_rollup", "Pss") / 1024,
      (memory("/proc/self/smaps_rollup", "Private_Dirty") + memory("/proc/self/smaps_rollup", "Private_Clean")) / 1024,
      threads(), (after.calls - before.calls) / operations, (after.bytes - before.bytes) / operations,
      seconds / operations * 1e6, (rest.calls - after.calls) / idle_seconds, (rest.bytes - after.bytes) / idle_seconds);
  std::fflush(stdout);
  world.leave();
  return cox::shutdown_all() == cox::ShutdownOutcome::Drained ? 0 : 1;
}

}  // namespace

int main(int count, char** arguments) {
  if (count > 1 && std::string(arguments[1]) == "work") {
    try {
      return work();
    } catch (...) {
      std::fprintf(stderr, "%s\n", cox::describe(std::current_exception()).c_str());
      return 2;
    }
  }
  const std::size_t processes = count > 1 ? std::stoul(arguments[1]) : 12;
  constexpr std::size_t facts = 10;
  const char* const names[facts] = {"join s",       "RSS MiB",         "PSS MiB",         "private MiB",
                                    "threads",      "sends/operation", "bytes/operation", "us/operation",
                                    "idle sends/s", "idle bytes/s"};
  cox::test::WorldProcesses world(processes, {"work"}, {"COX_HOST_DEVICES=1"});
  int failures = 0;
  std::vector<std::vector<double>> of;  // of each process
  for (std::size_t process = 0; process < processes; ++process) {
    const int code = world.wait(process);
    const std::string output = world.output(process);
    const std::size_t at = output.find("facts ");
    if (code != 0 || at == std::string::npos) {
      std::fprintf(stderr, "process %zu ended with %d:\n%s\n", process, code, output.c_str());
      ++failures;
      continue;
    }
    std::istringstream words(output.substr(at + 6));
    std::size_t number = 0;
    words >> number;
    of.emplace_back(std::istream_iterator<double>(words), std::istream_iterator<double>());
  }
  if (failures != 0 || of.size() != processes) return 1;
  std::printf("%zu processes of one host device\n%-16s %12s %12s %12s\n", processes, "", "process 0", "others, mean",
              "others, max");
  for (std::size_t fact = 0; fact < facts; ++fact) {
    double sum = 0;
    double most = 0;
    for (std::size_t process = 1; process < processes; ++process) {
      sum += of[process][fact];
      most = std::max(most, of[process][fact]);
    }
    std::printf("%-16s %12.2f %12.2f %12.2f\n", names[fact], of[0][fact], sum / static_cast<double>(processes - 1),
                most);
    // One heartbeat in a second; process 0 sends one to each.
    if (fact == 8 && (most > 3 || of[0][fact] > 2.0 * static_cast<double>(processes))) {
      std::fprintf(stderr, "an idle process sends more than its heartbeats\n");
      ++failures;
    }
  }
  return failures == 0 ? 0 : 1;
}
