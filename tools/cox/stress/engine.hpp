#pragma once

#include <coxswain/device_handle/base/call_error.hpp>
#include <coxswain/device_handle/base/shutdown.hpp>
#include <coxswain/device_handle/handle/device_handle.hpp>
#include <coxswain/runtime/base/byte_count.hpp>
#include <coxswain/runtime/config/process_settings.hpp>
#include <coxswain/servers/host/server/host_server.hpp>
#if COX_HAS_CUDA
#include <coxswain/servers/cuda/peer/cuda_communication.hpp>
#include <coxswain/servers/cuda/server/cuda_server.hpp>
#include <coxswain/tools/cox/stress/cuda_kernels.hpp>
#endif
#include <coxswain/tools/cox/argument_error.hpp>
#include <coxswain/tools/cox/device_list.hpp>
#include <coxswain/tools/cox/device_unavailable.hpp>
#include <coxswain/tools/cox/stress/balance.hpp>
#include <coxswain/tools/cox/stress/client.hpp>
#include <coxswain/tools/cox/stress/crew.hpp>
#include <coxswain/tools/cox/stress/host_kernels.hpp>
#include <coxswain/tools/cox/stress/monitor.hpp>
#include <coxswain/tools/cox/stress/process.hpp>
#include <coxswain/tools/cox/stress/report.hpp>
#include <coxswain/tools/cox/stress/round_book.hpp>
#include <coxswain/tools/cox/stress/timeout_scope.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace cox::stress {

/// The unmodified library. Tests use other backends instead, which break a law.
template <class Client>
struct ClientBackend {
  template <class S>
  using Handle = DeviceHandle<S>;
  using Compute = Client;
};
using LibraryBackend = ClientBackend<HostClient>;
#if COX_HAS_CUDA
struct CudaBackend : ClientBackend<CudaClient> {
  [[nodiscard]] static Reductions reductions(const std::vector<DeviceId>& devices, bool is_shared) {
    const bool in_order = settings().get<bool>("collectives.reproducible");
    // The rounds of a shared run are the same in one process and in several.
    if (is_shared || !reduces_in_peer_memory(devices)) return in_order ? Reductions::NcclOfIntegers : Reductions::Nccl;
    return in_order ? Reductions::PeerMemoryInOrder : Reductions::NcclAndPeerMemory;
  }
};
#endif

/// One run, from opening the devices to closing them again. An engine runs once.
template <class Backend>
class Engine {
 public:
  using Table = DeviceTable<Backend>;
  using Handle = typename Table::Handle;
  using Compute = typename Table::Compute;

  explicit Engine(Options options)
      : options_(with_what_there_is(std::move(options))),
        threads_before_(thread_count()),
        truth_(options_.devices, options_.clients),
        devices_(truth_, options_.faults.close_devices()),
        crew_(options_.clients) {}
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Blocks until the time is up, the operations are done, `interrupted` is set, or a law is broken; then closes all
  /// devices of the process. Throws DeviceUnavailable, or ArgumentError if the devices are too small for the payload.
  [[nodiscard]] Report run(const std::atomic<bool>& interrupted, const ProgressSink& progress);

 private:
  [[nodiscard]] static Options with_what_there_is(Options options) {
    if (options.ranks().size() < 2) {
      options.mix = options.mix.without_collectives();
    } else if constexpr (requires { Backend::reductions(options.devices, true); }) {
      options.reductions = Backend::reductions(options.devices, options.shared.has_value());
    }
    return options;
  }
  void open();
  void work();
  void close();
  void exchange_summaries();
  void check_memory();
  void check_closed();
  void check_counts();
  [[nodiscard]] std::size_t queued();
  [[nodiscard]] std::uint64_t operations_of(std::uint32_t client) const;

  const Options options_;
  const std::size_t threads_before_;
  Truth truth_;
  Table devices_;
  std::vector<MemoryUsage> memory_before_;
  std::vector<Exchange> exchanges_;
  StreamPool streams_;
  std::unique_ptr<RoundBook> rounds_;  // with several devices
  std::vector<std::unique_ptr<Client<Backend>>> clients_;
  Crew crew_;
  Report report_;
};

/// Runs an Engine. If clients are stuck, the engine is not destroyed, because they still use it, and the report is
/// marked `abandoned`.
template <class Backend = LibraryBackend>
[[nodiscard]] Report run(Options options, const std::atomic<bool>& interrupted, const ProgressSink& progress) {
  auto engine = std::make_unique<Engine<Backend>>(std::move(options));
  Report report = engine->run(interrupted, progress);
  if (report.abandoned) static_cast<void>(engine.release());
  return report;
}

template <class Backend>
Report Engine<Backend>::run(const std::atomic<bool>& interrupted, const ProgressSink& progress) {
  open();
  report_.seed = options_.seed;
  report_.clients = options_.clients;
  report_.mix = options_.mix;
  report_.payload = options_.payload;
  report_.rates = options_.faults;
  report_.begun = std::chrono::system_clock::now();
  report_.devices = options_.ranks();
  for (std::size_t i = 0; i < operation_count; ++i)
    report_.done[i] = options_.mix.weight(static_cast<Operation>(i)) > 0;
  const TimeoutScope timeout(options_.faults.missing > 0);
  work();
  Monitor monitor(options_, crew_, truth_, [this] { return queued(); });
  if (rounds_) monitor.set_check([this] { return rounds_->overdue(options_.patience / 2); });
  if (options_.shared) monitor.set_stop([this] { rounds_->agenda()->request_stop(); });
  const Monitor::End end = monitor.watch(interrupted, progress);
  report_.seconds = monitor.seconds();
  report_.interrupted = end == Monitor::End::Interrupted;
  report_.abandoned = end == Monitor::End::Stuck;
  if (report_.abandoned) {
    crew_.abandon();
  } else {
    crew_.join();
    close();
  }
  report_.violations = truth_.violations().all();
  report_.peak_rss_bytes = peak_resident_bytes();
  return report_;
}

template <class Backend>
void Engine<Backend>::open() {
  std::size_t capacity = std::numeric_limits<std::size_t>::max();
  for (std::size_t i = 0; i < options_.devices.size(); ++i) {
    const DeviceId device = options_.devices[i];
    try {
      Compute compute = Compute::load(device);
      memory_before_.push_back(compute.memory_usage());
      capacity = std::min(capacity, compute.properties().memory.capacity);
      devices_.add(Handle::insert(device, OrderAuditor(truth_, i)), std::move(compute));
    } catch (const std::exception& error) {
      shutdown_all();
      throw tools::DeviceUnavailable("device " + tools::device_name(device) + " cannot be opened: " + error.what());
    }
    exchanges_.emplace_back(std::size_t{options_.clients});
  }
  const std::size_t share = capacity / options_.clients;
  if (options_.payload.largest > share / 16) {
    shutdown_all();
    throw tools::ArgumentError("--payload: buffers of " + format_byte_count(options_.payload.largest) +
                               " are too large: with " + std::to_string(options_.clients) + " clients on a device of " +
                               format_byte_count(capacity) + " the most is " + format_byte_count(share / 16));
  }
  devices_.on_shutdown([this](std::size_t device) { exchanges_[device].clear(); });
  if (options_.ranks().size() > 1) rounds_ = std::make_unique<RoundBook>(options_, capacity / 16);
  for (std::uint32_t client = 0; client < options_.clients; ++client) {
    // work() replaces the first stream with the one of the client thread.
    for (StreamId& stream : truth_.streams(client)) stream = StreamId::allocate();
    clients_.push_back(std::make_unique<Client<Backend>>(options_, truth_, client, devices_, exchanges_, share,
                                                         rounds_.get(), streams_));
  }
}

template <class Backend>
void Engine<Backend>::work() {
  crew_.start([this](std::uint32_t client) { truth_.streams(client)[0] = StreamId::current(); },
              [this](std::uint32_t client) {
                clients_[client]->run(operations_of(client), crew_.stopped(), crew_.activity(client));
              });
}

template <class Backend>
std::uint64_t Engine<Backend>::operations_of(std::uint32_t client) const {
  if (!options_.operations) return std::numeric_limits<std::uint64_t>::max();
  const std::uint64_t all = *options_.operations;
  return all / options_.clients + (client < all % options_.clients ? 1 : 0);
}

template <class Backend>
std::size_t Engine<Backend>::queued() {
  std::size_t depth = 0;
  for (std::size_t i = 0; i < devices_.size(); ++i)
    if (const auto use = devices_.try_use(i)) depth += devices_.handle(i).statistics().depth;
  return depth;
}

template <class Backend>
void Engine<Backend>::close() {
  exchanges_.clear();
  check_memory();
  if (options_.on_idle) options_.on_idle();
  if (options_.shared) exchange_summaries();
  const ShutdownOutcome outcome = shutdown_all();
  if (outcome != ShutdownOutcome::Drained)
    truth_.violations().add(
        {.law = Law::Teardown, .expected = "shutdown_all drains the devices", .got = "work was discarded"});
  check_closed();
  check_counts();
  for (const auto& client : clients_) {
    report_.latencies.merge(client->latencies());
    for (std::size_t i = 0; i < fault_count; ++i) report_.faults[i] += client->faults()[i];
    report_.explained_errors += client->explained();
  }
  clients_.clear();
  rounds_.reset();
  devices_.clear();
  const std::size_t threads = settled_thread_count(threads_before_);
  if (threads <= threads_before_) return;
  std::string got = std::to_string(threads) + ":";
  for (const std::string& name : thread_names()) got += " " + name;
  truth_.violations().add({.law = Law::Teardown,
                           .expected = std::to_string(threads_before_) + " threads, as before the run",
                           .got = std::move(got)});
}

// After a violation the other processes may not have the same rounds, and must not be waited for.
template <class Backend>
void Engine<Backend>::exchange_summaries() {
  ProcessSummary own{.operations = crew_.operations(),
                     .rounds = rounds_->checked(),
                     .faults = crew_.faults(),
                     .violations = truth_.violations().all().size(),
                     .digest = rounds_->digest(),
                     .peak_rss_bytes = peak_resident_bytes()};
  for (const auto& client : clients_) own.explained_errors += client->explained();
  report_.process = options_.shared->process;
  report_.processes = {own};
  report_.has_digest = options_.shared->rounds && rounds_->agenda()->is_complete();
  if (!options_.shared->exchange || own.violations != 0) return;
  try {
    report_.processes = options_.shared->exchange(own);
  } catch (...) {
    truth_.violations().add({.law = Law::Errors,
                             .expected = "all processes end the run without a violation",
                             .got = describe(std::current_exception())});
  }
}

template <class Backend>
void Engine<Backend>::check_memory() {
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    Violation violation{.law = Law::Teardown, .device = options_.devices[i]};
    const MemoryUsage& before = memory_before_[i];
    violation.expected = std::to_string(before.number_allocs) + " allocations, as before the run";
    try {
      const MemoryUsage now = devices_.compute(i).memory_usage();
      if (now.number_allocs == before.number_allocs && now.bytes_in_use == before.bytes_in_use) continue;
      violation.got = to_string(now);
    } catch (const std::exception& error) {
      violation.got = error.what();
    }
    truth_.violations().add(std::move(violation));
  }
}

template <class Backend>
void Engine<Backend>::check_closed() {
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    Ticket ticket;
    ticket.device = static_cast<std::uint8_t>(i);
    ticket.fate = Fate::Dropped;
    try {
      devices_.handle(i).submit(SmallClosure{Canary(truth_, ticket)});
      truth_.violated(Law::Closed, ticket, "CallError closed after shutdown", "the call was accepted");
    } catch (const CallError& error) {
      if (error.kind() != CallError::Kind::Closed)
        truth_.violated(Law::Closed, ticket, "CallError closed after shutdown", error.what());
    }
  }
}

template <class Backend>
void Engine<Backend>::check_counts() {
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    Tally expected{.canaries = 1};  // of check_closed
    for (const auto& client : clients_) expected += client->tallies()[i];
    const Statistics counted = devices_.statistics(i);
    report_.statistics += counted;
    // After a violation the clients' expectations no longer need to hold.
    if (truth_.violations().any()) continue;
    // A copy that finds no page-locked memory is repeated without it: its first task fails, which no client notices.
    const bool more_fail = options_.scarce_pinned_memory && counted.failed > expected.failed;
    if (more_fail) report_.without_pinned_memory += counted.failed - expected.failed;
    check_balance(truth_, i, expected, counted, more_fail || options_.faults.close_devices());
  }
}

}  // namespace cox::stress
