// L3: no wake-up is lost. Usage: program_soak_single_submits [SECONDS [PAIRS]], by default 1 second and 1 pair of a
// client thread and a device. `tools/dev soak` runs it for longer.

#include <coxswain/tests/programs/single_submits.hpp>

#include <cstdlib>
#include <vector>

int main(int argc, char** argv) {
  const long seconds = argc > 1 ? std::strtol(argv[1], nullptr, 10) : 1;
  const long pairs = argc > 2 ? std::strtol(argv[2], nullptr, 10) : 1;
  if (seconds < 1 || pairs < 1) {
    std::fprintf(stderr, "usage: %s [SECONDS [PAIRS]], both at least 1\n", argv[0]);
    return 2;
  }
  cox::DeviceThreadOptions options;
  options.spin = std::chrono::nanoseconds(0);
  cox::set_default_device_thread_options(options);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  std::atomic<long> submitted{0};
  std::atomic<bool> lost{false};
  {
    std::vector<std::jthread> clients;
    for (long pair = 0; pair < pairs; ++pair) {
      clients.emplace_back([&, pair] {
        const cox::DeviceId device{.type = 0, .index = static_cast<std::uint16_t>(pair)};
        const auto handle = cox::DeviceHandle<cox::test::EmptyService>::get(device);
        const long count = cox::test::submit_singly(handle, deadline, std::numeric_limits<long>::max());
        if (count < 0) {
          lost = true;
        } else {
          submitted += count;
        }
      });
    }
  }
  std::printf("%ld submits, %s\n", submitted.load(), lost ? "a wake-up was lost" : "each started");
  return lost ? 1 : 0;
}
