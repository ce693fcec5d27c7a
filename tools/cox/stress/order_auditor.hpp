#pragma once

#include <coxswain/device_handle/base/stream_id.hpp>
#include <coxswain/tools/cox/stress/canary.hpp>
#include <coxswain/tools/cox/stress/truth.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>

namespace cox::stress {

/// The service on each device that compares what runs with what the clients say: order (L1), identity (L9), that the
/// closure before has been destroyed (L6), and that what a task throws comes to the sink and nothing else does (L5).
class OrderAuditor {
 public:
  /// `truth` outlives the service.
  OrderAuditor(Truth& truth, std::size_t device) noexcept : truth_(&truth), device_(device) {}

  /// The closure with that canary runs now. Throws InjectedFault where that is its fate.
  void run(Canary& canary);
  /// As run, of a closure that nobody waits for: what it throws goes to on_task_error.
  void run_unattended(Canary& canary);
  void on_task_error(const std::exception_ptr& error, StreamId stream);

  /// How many closures have run.
  [[nodiscard]] std::uint64_t runs() const noexcept { return truth_->device(device_).runs; }

 private:
  void check_order(const Ticket& ticket);
  void check_surroundings(const Ticket& ticket);

  Truth* truth_;
  std::size_t device_;
};

/// Nobody took what the task with that ticket threw.
void report_lost_error(Truth& truth, const Ticket& ticket);

}  // namespace cox::stress
