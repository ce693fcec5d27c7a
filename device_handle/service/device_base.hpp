#pragma once

#include <coxswain/device_handle/base/call_options.hpp>
#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/device_handle/base/stage.hpp>
#include <coxswain/device_handle/observe/task_counters.hpp>
#include <coxswain/device_handle/observe/wait_graph.hpp>
#include <coxswain/device_handle/queue/mailbox.hpp>
#include <coxswain/device_handle/queue/task.hpp>
#include <coxswain/device_handle/service/device_thread_options.hpp>
#include <coxswain/device_handle/service/inline_calls.hpp>
#include <coxswain/device_handle/service/post_queue.hpp>
#include <coxswain/device_handle/service/service_table.hpp>
#include <coxswain/device_handle/service/thread_context.hpp>

#include <memory>
#include <source_location>
#include <utility>

namespace cox {

/// What the caller of a device's post() may state besides the task: what happens at capacity, and the line of the call,
/// which a CallError gets. Made from any one of these where it is needed, off the fast path.
struct PostOptions {
  PostOptions() = default;
  explicit PostOptions(WhenFull when) noexcept : when_full(when) {}
  explicit PostOptions(const std::source_location& line) noexcept : site(line) {}
  explicit PostOptions(const CallOptions& options) noexcept : call(&options), site(options.site) {}

  WhenFull when_full = WhenFull::Block;
  const CallOptions* call = nullptr;  // limits the wait for room; null: no limit
  std::source_location site;
};

/// The common parts of a device with a thread and an inline device: services, options, counters, calls inside
/// `exclusive`, and what the registry of devices uses.
class DeviceBase : public WaitNode, public ThreadContext {
 public:
  // ---- any thread

  /// Whether the calling thread is in a task of this device.
  [[nodiscard]] virtual bool on_this_thread() const noexcept = 0;
  /// Refuses new calls from now on (L4).
  virtual void close() noexcept = 0;
  /// In a forked child: refuses new calls. The calling thread is no longer in a task of this device.
  virtual void mark_forked() noexcept = 0;

  [[nodiscard]] const DeviceThreadOptions& options() const noexcept { return options_; }
  [[nodiscard]] ServiceTable& services() noexcept { return services_; }

  // ---- the device thread

  /// Counts a task that ran inside another one.
  void count_inline_task(Outcome outcome) noexcept {
    counters_.count_inline();
    counters_.count_outcome(outcome);
  }

  /// While an object of this class exists, calls to this device's services run inline. Nests.
  class ExclusiveScope {
   public:
    explicit ExclusiveScope(DeviceBase& device) noexcept : device_(device), inner_(device.inline_calls_) {
      ++device_.between_.exclusive_depth;
    }
    ~ExclusiveScope() { --device_.between_.exclusive_depth; }
    ExclusiveScope(const ExclusiveScope&) = delete;
    ExclusiveScope& operator=(const ExclusiveScope&) = delete;

   private:
    DeviceBase& device_;
    InlineCalls::Level inner_;
  };
  [[nodiscard]] bool exclusive() const noexcept { return between_.exclusive_depth != 0; }
  [[nodiscard]] InlineCalls& inline_calls() noexcept { return inline_calls_; }

 protected:
  DeviceBase(DeviceId device, Stage stage, bool has_loop, DeviceThreadOptions options)
      : ThreadContext(device, stage, has_loop, options.spin), options_(std::move(options)) {}

  // Inside exclusive(), notifications are handled like any other call: at once, or right after the task that runs
  // inline. Returns whether the calling thread is inside exclusive().
  bool dispatch_inline(const std::shared_ptr<PostQueue>& posts) {
    if (!on_this_thread() || !exclusive()) return false;
    const auto dispatch = [this](const std::shared_ptr<PostQueue>& notified) {
      inline_calls_.run([&] { count_inline_task(PostQueue::DispatchPosts{notified}()); });
    };
    if (inline_calls_.in_task()) {
      inline_calls_.defer([dispatch, posts] { dispatch(posts); });
    } else {
      dispatch(posts);
    }
    return true;
  }

  void dispatch_now(PostQueue& posts) noexcept final {
    inline_calls_.run([&] { posts.dispatch(); });
  }

  const DeviceThreadOptions options_;
  ServiceTable services_;
  alignas(cache_line) TaskCounters counters_;
  InlineCalls inline_calls_;
};

}  // namespace cox
