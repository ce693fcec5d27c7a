// L1 L2: the kernel gives up the time-stamp counter while clients submit: every closure runs once, in order.

#include <coxswain/device_handle/handle/device_handle.hpp>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

namespace {

struct Service {
  explicit Service(cox::DeviceId) {}
  std::vector<long> seen;
};

bool write_clock_source(const char* path, const char* name) {
  std::FILE* file = std::fopen(path, "w");
  if (file == nullptr) return false;
  const bool written = std::fprintf(file, "%s\n", name) > 0;
  return std::fclose(file) == 0 && written;
}

}  // namespace

int main() {
  constexpr long clients = 4;
  constexpr long rounds = 1200;
  const auto handle = cox::DeviceHandle<Service>::get({.type = 0, .index = 0});
  // The clients submit in turns, so that the order of all their closures is known.
  std::atomic<long> turn{0};
  std::vector<std::thread> threads;
  for (long client = 0; client < clients; ++client) {
    threads.emplace_back([&, client] {
      for (long number = client; number < rounds; number += clients) {
        for (long now = turn.load(); now != number; now = turn.load()) turn.wait(now);
        handle.submit([number](Service& service) { service.seen.push_back(number); });
        turn.store(number + 1);
        turn.notify_all();
      }
    });
  }
  char path[] = "/tmp/coxswain_clock_source_XXXXXX";
  const int descriptor = mkstemp(path);
  const auto await_turn = [&](long number) {
    for (long now = turn.load(); now < number; now = turn.load()) turn.wait(now);
  };
  await_turn(rounds / 3);
  bool right = descriptor >= 0 && write_clock_source(path, "tsc");
  const bool trusted = cox::stamps_are_time();
  cox::detail::check_clock_source(path);
  cox::detail::check_clock_source("/nowhere/clocksource");  // cannot be read: says nothing
  right = right && cox::stamps_are_time() == trusted;
  await_turn(2 * rounds / 3);
  right = right && write_clock_source(path, "hpet");
  cox::detail::check_clock_source(path);
  std::remove(path);
  right = right && !cox::stamps_are_time();
  for (std::thread& thread : threads) thread.join();
  const auto seen = handle.submit_blocking([](Service& service) { return service.seen; });
  right = right && seen.size() == static_cast<std::size_t>(rounds);
  for (std::size_t i = 0; right && i < seen.size(); ++i) right = seen[i] == static_cast<long>(i);
  std::printf("trusted at first: %d, %zu closures ran, %s\n", trusted, seen.size(), right ? "in order" : "WRONG");
  return right ? 0 : 1;
}
