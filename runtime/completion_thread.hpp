#pragma once

#include <coxswain/device_handle/device_id.hpp>
#include <coxswain/runtime/unique_function.hpp>

#include <memory>

namespace cox {

/// The thread of a device on which completion handlers run that have no executor of their own, so that user code holds
/// up neither a stream nor the device thread. Started at the first use: a device whose futures are only waited for has
/// no such thread.
class CompletionThread {
 public:
  explicit CompletionThread(DeviceId device);
  CompletionThread(const CompletionThread&) = delete;
  CompletionThread& operator=(const CompletionThread&) = delete;
  /// As stop().
  ~CompletionThread();

  /// Runs `function` on the thread, in the order of the calls; after stop() on the caller's thread. What it throws is
  /// reported as a task error and goes no further. Does not block, but for the start of the thread.
  void execute(UniqueFunction<void()> function);
  /// Runs what was accepted so far, then joins the thread, unless called on it. Idempotent.
  void stop() noexcept;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace cox
