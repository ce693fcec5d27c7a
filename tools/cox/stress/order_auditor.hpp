#pragma once

#include <coxswain/device_handle/base/stream_id.hpp>
#include <coxswain/tools/cox/stress/canary.hpp>
#include <coxswain/tools/cox/stress/truth.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>

namespace cox::stress {

/// The service on each device that checks each closure against its ticket: order (L1), identity (L9), that the previous
/// closure has been destroyed (L6), and that the error sink receives the exceptions of tasks and no others (L5).
class OrderAuditor {
 public:
  /// `truth` outlives the service.
  OrderAuditor(Truth& truth, std::size_t device) noexcept : truth_(&truth), device_(device) {}

  /// Call when the closure with that canary runs. Throws InjectedFault if its fate is Throws.
  void run(Canary& canary);
  /// As run, for a closure that no caller waits for: its exception is passed to on_task_error.
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

/// Reports that the exception of the task with that ticket did not reach the error sink.
void report_lost_error(Truth& truth, const Ticket& ticket);

}  // namespace cox::stress
