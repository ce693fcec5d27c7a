#pragma once

#include <coxswain/device_handle/base/stream_id.hpp>

#include <cstddef>
#include <deque>
#include <memory>
#include <utility>

namespace cox {

/// Fire-and-forget calls made inside `exclusive` run at once. A call made by a task that itself runs inline runs right
/// after that task, in the order of the calls. Device thread only.
class InlineCalls {
 public:
  /// While an object of this class exists, calls belong to a new, inner exclusive.
  class Level {
   public:
    explicit Level(InlineCalls& calls) noexcept
        : calls_(calls),
          outer_task_(std::exchange(calls.in_task_, false)),
          outer_runs_(std::exchange(calls.runs_deferred_, false)),
          outer_first_(std::exchange(calls.first_, calls.deferred_.size())) {}
    ~Level() {
      calls_.in_task_ = outer_task_;
      calls_.runs_deferred_ = outer_runs_;
      calls_.first_ = outer_first_;
    }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    InlineCalls& calls_;
    bool outer_task_;
    bool outer_runs_;
    std::size_t outer_first_;
  };

  /// Whether a task of this level is on the stack.
  [[nodiscard]] bool in_task() const noexcept { return in_task_; }

  /// Stores `again()` to be called, with the caller's StreamId, after the running task has ended.
  template <class F>
  void defer(F&& again) {
    deferred_.push_back(std::make_unique<Deferred<std::decay_t<F>>>(std::forward<F>(again)));
  }

  /// Runs `task()`, then the calls that it has deferred. Returns its result, or throws its exception, after that.
  template <class F>
  decltype(auto) run(F&& task) {
    const Drain drain{*this, std::exchange(in_task_, true)};
    return std::forward<F>(task)();
  }

 private:
  struct DeferredBase {
    virtual ~DeferredBase() = default;
    virtual void call() = 0;
  };

  template <class F>
  struct Deferred final : DeferredBase {
    explicit Deferred(F&& moved) : again(std::move(moved)), stream(StreamId::current()) {}
    void call() override {
      const StreamScope scope(stream);
      again();
    }
    F again;
    StreamId stream;
  };

  struct Drain {
    InlineCalls& calls;
    bool outer;
    ~Drain() {
      calls.in_task_ = outer;
      if (!outer && !calls.runs_deferred_ && calls.deferred_.size() > calls.first_) calls.run_deferred();
    }
  };

  void run_deferred();

  std::deque<std::unique_ptr<DeferredBase>> deferred_;
  std::size_t first_ = 0;  // of this level in deferred_; those before it belong to outer exclusives
  bool in_task_ = false;
  bool runs_deferred_ = false;  // run_deferred() is on the stack, and will also run what is deferred now
};

}  // namespace cox
