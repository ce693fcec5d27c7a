#pragma once

#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/tools/cox/stress/activity.hpp>
#include <coxswain/tools/cox/stress/blocking_client.hpp>
#include <coxswain/tools/cox/stress/collective_client.hpp>
#include <coxswain/tools/cox/stress/data_client.hpp>
#include <coxswain/tools/cox/stress/device_table.hpp>
#include <coxswain/tools/cox/stress/exclusive_client.hpp>
#include <coxswain/tools/cox/stress/graph_client.hpp>
#include <coxswain/tools/cox/stress/latencies.hpp>
#include <coxswain/tools/cox/stress/program.hpp>
#include <coxswain/tools/cox/stress/submit_client.hpp>
#include <coxswain/tools/cox/stress/tensor_client.hpp>

#include <atomic>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace cox::stress {

/// The work of one client thread: executes its program until it is stopped, and checks all results.
template <class Backend>
class Client {
 public:
  using Table = DeviceTable<Backend>;
  using Handle = typename Table::Handle;
  using Compute = typename Table::Compute;

  /// `rounds`: null without collectives.
  Client(const Options& options, Truth& truth, std::uint32_t client, Table& table, std::vector<Exchange>& exchanges,
         std::size_t share, RoundBook* rounds, StreamPool& streams)
      : program_(options, client),
        book_(truth, client),
        table_(table),
        openings_(table.size()),
        submit_(book_, handles_of(table)),
        blocking_(book_, handles_of(table)),
        exclusive_(book_, handles_of(table)),
        data_(book_, computes_of(table), exchanges, share),
        tensors_(book_, computes_of(table)),
        graphs_(book_, computes_of(table)),
        unanswered_(table.size()) {
    if (rounds != nullptr) collectives_.emplace(options, book_, *rounds, streams, table, latencies_);
  }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  /// Does operations until `stop`, a violation, or `most` are done; then waits for its work on the devices.
  void run(std::uint64_t most, const std::atomic<bool>& stop, Activity& activity) noexcept {
    Plan plan;
    try {
      for (std::uint64_t number = 0; number < most; ++number) {
        // Relaxed: the flag guards nothing.
        if (stop.load(std::memory_order_relaxed) || book_.truth().violations().any()) break;
        if (collectives_ && collectives_->is_over()) break;
        plan = program_.at(number);
        activity.operation.store(plan.operation, std::memory_order_relaxed);
        activity.device.store(static_cast<std::uint32_t>(plan.device), std::memory_order_relaxed);
        Fault injected = plan.fault;
        if (is_collective(plan.operation))
          injected = collectives_->begin(plan);
        else
          latencies_[plan.operation].record(perform(plan));
        activity.operations.store(number + 1, std::memory_order_relaxed);
        ++faults_[static_cast<std::size_t>(injected)];
        if (injected != Fault::None)
          activity.faults.store(activity.faults.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
      }
      finish();
    } catch (...) {
      const Ticket ticket = book_.write(plan.device, Sequence::of(plan.number, 0), Fate::Runs, 0);
      book_.truth().violated(Law::Isolation, ticket, std::string(to_string(plan.operation)) + " succeeds",
                             "it threw: " + describe(std::current_exception()));
    }
  }

  [[nodiscard]] const Latencies& latencies() const noexcept { return latencies_; }
  /// How often each was injected.
  [[nodiscard]] const FaultCounts& faults() const noexcept { return faults_; }
  /// Errors of collectives that a fault explains.
  [[nodiscard]] std::uint64_t explained() const noexcept { return collectives_ ? collectives_->explained() : 0; }
  [[nodiscard]] const std::vector<Tally>& tallies() const noexcept { return book_.tallies(); }

 private:
  [[nodiscard]] static std::vector<Handle> handles_of(Table& table) {
    std::vector<Handle> handles;
    for (std::size_t i = 0; i < table.size(); ++i) handles.push_back(table.handle(i));
    return handles;
  }
  [[nodiscard]] static std::vector<Compute> computes_of(Table& table) {
    std::vector<Compute> computes;
    for (std::size_t i = 0; i < table.size(); ++i) computes.push_back(table.compute(i));
    return computes;
  }

  // Requires a Use of the device. Replaces the handles of a device that was opened again.
  void catch_up(std::size_t device) {
    const std::uint64_t openings = table_.openings(device);
    if (openings_[device] == openings) return;
    openings_[device] = openings;
    submit_.reopened(device, table_.handle(device));
    blocking_.reopened(device, table_.handle(device));
    exclusive_.reopened(device, table_.handle(device));
    data_.reopened(device, table_.compute(device));
    tensors_.reopened(device, table_.compute(device));
    graphs_.reopened(device, table_.compute(device));
  }

  void finish() {
    if (collectives_) collectives_->finish();
    std::vector<typename Table::Use> uses;
    for (std::size_t device = 0; device < table_.size(); ++device) {
      uses.push_back(table_.use(device));
      catch_up(device);
    }
    if (collectives_) collectives_->check_idle();
    graphs_.finish();
    tensors_.finish();
    data_.finish();
  }

  [[nodiscard]] std::uint64_t perform(const Plan& plan) {
    const auto use = table_.use(plan.device);
    catch_up(plan.device);
    switch (plan.operation) {
      case Operation::Submit: return submit(plan);
      case Operation::Blocking: return blocking_.blocking(plan);
      case Operation::Exclusive: return exclusive_.exclusive(plan);
      case Operation::Create: return data_.create(plan);
      case Operation::Read: return data_.read(plan);
      case Operation::Launch: return data_.launch(plan);
      case Operation::Tensor: return tensors_.tensor(plan);
      case Operation::Graph: return graphs_.graph(plan);
      case Operation::Profile: return data_.profile(plan);
      default: return 0;
    }
    return 0;
  }

  // Waits for the device from time to time. This bounds the number of queued closures, and with it the memory of a run.
  [[nodiscard]] std::uint64_t submit(const Plan& plan) {
    constexpr std::uint32_t most_unanswered = 4096;
    if (++unanswered_[plan.device] > most_unanswered) {
      blocking_.barrier(plan.device, plan.number);
      unanswered_[plan.device] = 1;
    }
    return submit_.submit(plan);
  }

  Program program_;
  TicketBook book_;
  Table& table_;
  std::vector<std::uint64_t> openings_;  // by device: the last one that catch_up() has seen
  SubmitClient<Handle> submit_;
  BlockingClient<Handle> blocking_;
  ExclusiveClient<Handle> exclusive_;
  DataClient<Compute> data_;
  TensorClient<Compute> tensors_;
  GraphClient<Compute> graphs_;
  std::vector<std::uint32_t> unanswered_;  // by device: submitted since the last barrier
  Latencies latencies_;
  FaultCounts faults_{};
  std::optional<CollectiveClient<Backend>> collectives_;  // with several devices
};

}  // namespace cox::stress
