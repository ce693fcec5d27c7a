#pragma once

#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/perf/harness/stopwatch.hpp>
#include <coxswain/perf/harness/suite.hpp>
#include <coxswain/runtime/bytes/bytes.hpp>
#include <coxswain/runtime/communication/communication_id.hpp>
#include <coxswain/runtime/handle/handle.hpp>
#include <coxswain/runtime/kept/kept_set.hpp>
#include <coxswain/runtime/tensor/element_type.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace cox::perf {

/// How a program holds its state, and what its steps consist of.
struct StepOptions {
  bool kept = false;
  KeptMode mode = KeptMode::InPlace;
  std::uint64_t checksum_every = 0;
  /// Each step begins with an all_reduce of one float per device. With two copies on several devices begin_update then
  /// waits for nothing.
  bool all_reduces = false;
};

/// Adds the cases of steps that write `text` of state, on one device and, if `has_two`, on each of two. `with(count,
/// how)`: what makes a sample of such steps on the first `count` devices, in `unit`.
template <class With>
void add_kept_cases(Suite& suite, const std::string& text, const std::string& unit, bool has_two, const With& with) {
  suite.add({.figure = "F23",
             .name = "a step that writes " + text + " of state",
             .metrics = {{"", unit + " per step"}},
             .contenders = {{"kept", with(1, {.kept = true}), "in place"},
                            {"plain", with(1, {}), "not kept"},
                            {"two_copies", with(1, {.kept = true, .mode = KeptMode::Double})},
                            {"checksums", with(1, {.kept = true, .checksum_every = 1}), "of each commit"},
                            {"checksums_of_64th", with(1, {.kept = true, .checksum_every = 64})}},
             .minus = "plain"});
  if (!has_two) return;
  suite.add(
      {.figure = "F23",
       .name = "a step that writes " + text + " of state on each of two devices",
       .metrics = {{"", unit + " per step"}},
       .contenders = {{"kept", with(2, {.kept = true}), "in place"},
                      {"plain", with(2, {}), "not kept"},
                      {"two_copies", with(2, {.kept = true, .mode = KeptMode::Double}),
                       "begin_update waits for the last commit of both"},
                      {"two_copies_all_reduce", with(2, {.kept = true, .mode = KeptMode::Double, .all_reduces = true}),
                       "an all_reduce before each update instead"},
                      {"plain_all_reduce", with(2, {.all_reduces = true}), "not kept, with that all_reduce"}},
       .minus = "plain"});
}

/// Steps of a program with `bytes` of state on each of its devices, which one thread drives: each step writes all of it
/// by one kernel per device. The state is made by the constructor.
template <class Client>
class KeptSteps {
 public:
  /// Queues a kernel that writes `value` everywhere.
  using Fill = std::function<void(const Client&, const Handle& state, std::uint64_t value)>;

  /// The clients must outlive the object.
  KeptSteps(std::span<const Client> clients, Fill fill, std::size_t bytes, const StepOptions& options)
      : clients_(clients), fill_(std::move(fill)), all_reduces_(options.all_reduces) {
    std::vector<DeviceId> devices;
    for (const Client& client : clients_) devices.push_back(client.device_id());
    if (clients_.size() > 1) all_.emplace(devices);
    if (options.kept) {
      static std::atomic<unsigned> sets{0};
      set_.emplace("perf " + std::to_string(sets.fetch_add(1)), devices,
                   KeptOptions{.mode = options.mode,
                               .collective_between = options.all_reduces,
                               .checksum_every = options.checksum_every});
    }
    for (const Client& client : clients_) {
      if (set_)
        static_cast<void>(client.kept(*set_, "state", bytes));
      else
        plain_.push_back(client.memory_persistent_allocation([&] { return client.empty(bytes); }));
      if (all_reduces_) floats_.push_back(client.create(Bytes::zeroed(sizeof(float))));
    }
  }

  /// ns of one step, until the devices have made the last one: the work of the caller's thread and of the device
  /// threads counts as far as the kernels do not hide it.
  [[nodiscard]] double nanoseconds_of_step(std::size_t steps) {
    for (std::size_t i = 0; i < steps_between_syncs; ++i) step();
    sync();
    const Stopwatch watch;
    for (std::size_t i = 0; i < steps; ++i) step();
    sync();
    return watch.nanoseconds() / static_cast<double>(steps);
  }

  /// The state is not held any longer than the object.
  void forget() {
    if (set_) set_->forget();
  }

 private:
  static constexpr std::size_t steps_between_syncs = 64;  // a supervisor holds the values of more commits

  void sync() {
    for (const Client& client : clients_) client.sync().get();
  }

  void step() {
    ++number_;
    if (all_reduces_) {
      for (std::size_t i = 0; i < clients_.size(); ++i)
        clients_[i].all_reduce(floats_[i], floats_[i], ElementType::F32, *all_);
      for (const Client& client : clients_) client.sync_collective();
    }
    for (std::size_t i = 0; i < clients_.size(); ++i) update(i);
    if (number_ % steps_between_syncs == 0) sync();
  }

  void update(std::size_t rank) {
    const Client& client = clients_[rank];
    if (!set_) return fill_(client, plain_[rank], number_);
    client.begin_update(*set_);
    fill_(client, client.kept_next(*set_, "state"), number_);
    const std::array<std::uint64_t, 8> values{number_};
    client.commit(*set_, std::as_bytes(std::span(values)));
  }

  std::span<const Client> clients_;
  Fill fill_;
  bool all_reduces_;
  std::optional<CommunicationId> all_;
  std::optional<KeptSet> set_;
  std::vector<Handle> plain_;
  std::vector<Handle> floats_;
  std::uint64_t number_ = 0;
};

}  // namespace cox::perf
