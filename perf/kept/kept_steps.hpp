#pragma once

#include <coxswain/device_handle/base/shutdown.hpp>
#include <coxswain/perf/harness/stopwatch.hpp>
#include <coxswain/perf/harness/suite.hpp>
#include <coxswain/runtime/kept/kept_set.hpp>
#include <coxswain/servers/host/server/host_server.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>

namespace cox::perf {

/// Steps of a program with state on one host device: each writes all of it by one kernel. How the state is held
/// differs.
struct StepOptions {
  bool kept = false;
  KeptMode mode = KeptMode::InPlace;
  std::uint64_t checksum_every = 0;
};

/// ns of one step, over `steps` steps: until the device has made the last one, so the work of the caller's thread and
/// of the device thread count as far as they are not hidden by the kernels.
[[nodiscard]] inline Sample time_of_steps(std::size_t bytes, std::size_t steps, const StepOptions& options) {
  constexpr std::size_t steps_between_syncs = 64;  // fewer than the commits whose values a supervisor holds
  static std::atomic<unsigned> sets{0};
  double nanoseconds = 0;
  {
    const HostClient client = HostClient::load({host_device_type, 0});
    std::optional<KeptSet> set;
    std::optional<Handle> plain;
    if (options.kept) {
      set.emplace("perf " + std::to_string(sets.fetch_add(1)), std::vector{client.device_id()},
                  KeptOptions{.mode = options.mode, .checksum_every = options.checksum_every});
      static_cast<void>(client.kept(*set, "state", bytes));
    } else {
      plain = client.memory_persistent_allocation([&] { return client.empty(bytes); });
    }
    std::uint64_t number = 0;
    const auto step = [&] {
      ++number;
      if (set) client.begin_update(*set);
      const Handle& state = set ? client.kept_next(*set, "state") : *plain;
      client.call(KernelArguments().with_buffer(state, Access::Overwrite),
                  [bytes, value = static_cast<int>(number)](std::span<void* const> pointers) {
                    std::memset(pointers[0], value, bytes);
                  });
      const std::array<std::uint64_t, 8> values{number};
      if (set) client.commit(*set, std::as_bytes(std::span(values)));
      if (number % steps_between_syncs == 0) client.sync().get();
    };
    for (std::size_t i = 0; i < steps_between_syncs; ++i) step();
    const Stopwatch watch;
    for (std::size_t i = 0; i < steps; ++i) step();
    client.sync().get();
    nanoseconds = watch.nanoseconds();
    if (set) set->forget();
  }
  shutdown({host_device_type, 0});
  return {nanoseconds / static_cast<double>(steps)};
}

}  // namespace cox::perf
