#pragma once

#include <coxswain/device_handle/base/call_error.hpp>
#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/device_handle/base/shutdown.hpp>
#include <coxswain/device_handle/base/stage.hpp>
#include <coxswain/device_handle/base/stream_id.hpp>
#include <coxswain/device_handle/base/visibility.hpp>
#include <coxswain/device_handle/observe/wait_graph.hpp>
#include <coxswain/device_handle/queue/boxed_task.hpp>
#include <coxswain/device_handle/service/device_base.hpp>

#include <atomic>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <source_location>
#include <utility>

namespace cox {

/// The pool of boxed tasks where there is no pool: each task is allocated on the heap.
struct NoBlockPool {
  static constexpr std::size_t block_bytes = 0;
  static constexpr std::size_t block_alignment = 1;
  static void* allocate() noexcept { return nullptr; }
  static void recycle(void*) noexcept {}
  static void free(void*) noexcept {}
};

/// The contract of a DeviceThread without a thread: tasks run on the caller's thread, one at a time, under a recursive
/// lock. For debugging, and for comparison in measurements.
class InlineDevice final : public DeviceBase {
 public:
  static constexpr bool is_blocking = true;

  [[nodiscard]] static std::shared_ptr<InlineDevice> start(DeviceId device, Stage stage);

  [[nodiscard]] bool on_this_thread() const noexcept override {
    return owner_.load(std::memory_order_relaxed) == this_thread();
  }

  /// Runs the task that `make()` returns, and the tasks that it queues, on the calling thread. Inside a task of this
  /// device, it queues the task after those already queued. Blocks while another thread is inside the device. Throws
  /// CallError Closed, Forked, WouldDeadlock; if a source_location is passed, the error has it as its site. Other
  /// options have no effect: the queue has no capacity to wait for, and the task checks its CallOptions when it starts.
  template <TaskMaker Make, class... Options>
    requires std::constructible_from<PostOptions, const Options&...>
  bool post(Make&& make, const Options&... options) {
    return detail::at_site(PostOptions(options...).site, [&] {
      throw_if_closing();
      if (on_this_thread()) {
        pending_.push_back({box(make), StreamId::current()});
        counters_.count_inline();
        return false;
      }
      const Entry entry(*this, enter());
      throw_if_closing();
      {
        auto task = make();
        counters_.count_inline();
        counters_.count_outcome(task());
      }
      run_pending();
      return false;
    });
  }

  /// Boxes the task of a call that is made inside another task; see InlineCalls.
  using Boxed = BoxedTask<NoBlockPool>;
  template <TaskMaker Make>
  [[nodiscard]] Boxed box(Make&& make) {
    return Boxed::make(make, no_pool_);
  }

  [[nodiscard]] Statistics statistics() const { return counters_.snapshot(0, 1.0); }

  void close() noexcept override { closing_.store(true, std::memory_order_relaxed); }
  void mark_forked() noexcept override { owner_.store(nullptr, std::memory_order_relaxed); }  // forked inside a task

  /// Called once, after close(). Destroys the services when the thread that is inside the device has left. If it has
  /// not left by `deadline`, returns Abandoned: that thread discards what it has queued and destroys the services when
  /// it leaves.
  ShutdownOutcome join(std::chrono::steady_clock::time_point deadline);

  template <class S>
  [[nodiscard]] static ServiceCell<S>& current_cell() {
    return *current_->services_.find<S>();
  }

  static void name_running(const char*, const std::source_location&) noexcept {}

  /// While an object of this class exists, current_cell() finds the cells of `device`: the thread may be inside
  /// several.
  class CurrentScope {
   public:
    explicit CurrentScope(InlineDevice& device) noexcept : outer_(std::exchange(current_, &device)) {}
    ~CurrentScope() { current_ = outer_; }
    CurrentScope(const CurrentScope&) = delete;
    CurrentScope& operator=(const CurrentScope&) = delete;

   private:
    InlineDevice* outer_;
  };

 private:
  struct Pending {
    Boxed task;
    StreamId stream;
  };

  // The calling thread is inside the device until the end of the scope.
  class Entry {
   public:
    Entry(InlineDevice& device, std::unique_lock<std::mutex> lock);
    ~Entry();
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

   private:
    InlineDevice& device_;
    std::unique_lock<std::mutex> lock_;
    CurrentScope current_;
    HeldNode held_;
  };

  InlineDevice(DeviceId device, Stage stage);

  COX_VISIBILITY_DEFAULT [[nodiscard]] static const void* this_thread() noexcept {
    static constinit thread_local char mark = 0;
    return &mark;
  }
  [[nodiscard]] std::unique_lock<std::mutex> enter();
  void queue_dispatch(const std::shared_ptr<PostQueue>& posts) override;
  void run_pending();
  void destroy_services(std::unique_lock<std::mutex> lock);
  void destroy_if_abandoned();
  void throw_if_closing() const {
    if (closing_.load(std::memory_order_relaxed)) [[unlikely]]
      throw_closed();
  }
  [[noreturn]] void throw_closed() const;

  // The innermost device that the calling thread is in.
  COX_VISIBILITY_DEFAULT static inline constinit thread_local InlineDevice* current_ = nullptr;

  NoBlockPool no_pool_;
  std::mutex mutex_;
  std::atomic<const void*> owner_{nullptr};  // relaxed: a thread only checks whether it is the owner itself
  std::atomic<bool> closing_{false};         // relaxed: a call that begins after close() was called sees it
  std::atomic<bool> abandoned_{false};       // join() has left the services to the thread inside the device
  // Guarded by mutex_, like all members of DeviceBase that are not const:
  std::deque<Pending> pending_;
  bool closed_ = false;  // the services are destroyed
};

}  // namespace cox
