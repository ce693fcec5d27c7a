#pragma once

#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/device_handle/base/unique_function.hpp>
#include <coxswain/device_handle/observe/wait_graph.hpp>

#include <memory>

namespace cox {

/// The thread of a device that runs the completion handlers that have no executor of their own, so that user code
/// blocks neither a stream nor the device thread. A shutdown of the device joins this thread; in the wait graph, the
/// end of the device therefore waits for the functions that run on it (L10).
///
///     shutdown(device) -> completion thread -> what its handlers wait for
///                     `-> streams() <- the device's futures; -> what user code on the device's streams waits for
class CompletionThread {
 public:
  /// Starts the thread. Throws std::system_error if the system has none, std::bad_alloc.
  explicit CompletionThread(DeviceId device);
  CompletionThread(const CompletionThread&) = delete;
  CompletionThread& operator=(const CompletionThread&) = delete;
  /// Calls stop().
  ~CompletionThread();

  /// Runs `function` on the thread, in the order of the calls; after stop(), or if there is no memory to queue it, on
  /// the calling thread. An exception from it is reported as a task error. Does not block, unless `function` runs on
  /// the calling thread and blocks.
  void execute(UniqueFunction<void()> function) noexcept;
  /// Runs the functions that were accepted so far, then joins the thread, unless it is called on that thread.
  /// Idempotent.
  void stop() noexcept;

  [[nodiscard]] DeviceId device() const noexcept;
  /// The node of the device's streams in the wait graph. The device's futures wait for it, and a thread that runs user
  /// code in stream order holds it (HeldNode). Any thread; valid for the lifetime of this object.
  [[nodiscard]] const std::shared_ptr<WaitNode>& streams() const noexcept;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace cox
