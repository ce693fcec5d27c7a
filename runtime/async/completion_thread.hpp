#pragma once

#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/device_handle/base/unique_function.hpp>
#include <coxswain/device_handle/observe/wait_graph.hpp>

#include <memory>

namespace cox {

/// The thread of a device on which completion handlers run that have no executor of their own, so that user code holds
/// up neither a stream nor the device thread. A shutdown of the device joins it: what runs on it holds the device's end
/// up in the graph of waits (L10).
///
///     shutdown(device) -> completion thread -> whatever a handler waits for
///                     `-> streams() <- the device's futures; -> whatever user code on the device's streams waits for
class CompletionThread {
 public:
  /// Starts the thread. Throws std::system_error if the system has none, std::bad_alloc.
  explicit CompletionThread(DeviceId device);
  CompletionThread(const CompletionThread&) = delete;
  CompletionThread& operator=(const CompletionThread&) = delete;
  /// As stop().
  ~CompletionThread();

  /// Runs `function` on the thread, in the order of the calls; after stop(), or if there is no memory to queue it, on
  /// the caller's thread. What it throws is reported as a task error. Does not block.
  void execute(UniqueFunction<void()> function) noexcept;
  /// Runs what was accepted so far, then joins the thread, unless called on it. Idempotent.
  void stop() noexcept;

  [[nodiscard]] DeviceId device() const noexcept;
  /// The device's streams in the graph of waits: the device's futures wait for them, and a thread that runs user code
  /// in stream order holds them up (HeldNode). Any thread; lives as long as this.
  [[nodiscard]] const std::shared_ptr<WaitNode>& streams() const noexcept;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace cox
