#pragma once

// What the contract suite shares: the two handles it is instantiated for, gates, services, and closures that tell when
// and where they die. Tests prove order with gates; a bound on a wait is there only so that a failure is a failure and
// not a hang.

#include <coxswain/device_handle/handle/device_handle.hpp>
#include <coxswain/device_handle/handle/inline_device_handle.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <ostream>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace contract {

using namespace std::chrono_literals;

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif

/// `count`, or a twentieth of it where every access is instrumented.
constexpr int scaled(int count) { return sanitized ? count / 20 : count; }

/// What a waiting test takes for never.
inline constexpr auto never = 20s;

/// The implementations of the contract.
struct Threaded {
  template <class S>
  using Handle = cox::DeviceHandle<S>;
};
struct Inline {
  template <class S>
  using Handle = cox::InlineDeviceHandle<S>;
};

/// Closed until somebody opens it; stays open. Copies are the same gate, so it outlives whoever waits at it.
class Gate {
 public:
  void open() const {
    const std::scoped_lock lock(state_->mutex);
    state_->open = true;
    state_->changed.notify_all();
  }
  void wait() const {
    std::unique_lock lock(state_->mutex);
    state_->changed.wait(lock, [this] { return state_->open; });
  }
  [[nodiscard]] bool opens_within(std::chrono::nanoseconds limit) const {
    std::unique_lock lock(state_->mutex);
    return state_->changed.wait_for(lock, limit, [this] { return state_->open; });
  }
  [[nodiscard]] bool is_open() const { return opens_within(0ns); }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    bool open = false;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

/// Looks until `condition()` holds; false if it never does.
template <class Condition>
[[nodiscard]] bool eventually(Condition&& condition, std::chrono::nanoseconds limit = never) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

/// A device of this test's own, shut down at its end.
class TestDevice {
 public:
  TestDevice() : id_{0, next_.fetch_add(1)} {}
  explicit TestDevice(const cox::DeviceThreadOptions& options) : TestDevice() {
    set_device_thread_options(id_, options);
  }
  ~TestDevice() { close(); }
  TestDevice(const TestDevice&) = delete;
  TestDevice& operator=(const TestDevice&) = delete;

  operator cox::DeviceId() const { return id_; }
  [[nodiscard]] cox::DeviceId id() const { return id_; }
  cox::ShutdownOutcome close(std::chrono::milliseconds timeout = 20s) const { return cox::shutdown(id_, timeout); }

 private:
  static inline std::atomic<std::uint16_t> next_{0};
  cox::DeviceId id_;
};

/// Services that differ only in type.
template <int number>
struct Service {
  explicit Service(cox::DeviceId id) : device(id) {}
  cox::DeviceId device;
  int value = 0;
  std::vector<int> order;
};
using Alpha = Service<0>;
using Beta = Service<1>;

/// One of the stage that is shut down first.
struct Up {
  static constexpr cox::Stage stage = cox::Stage::Upstream;
  explicit Up(cox::DeviceId) {}
};

/// Occupies a handle's device with one task until released.
template <class Handle>
class Occupied {
 public:
  explicit Occupied(const Handle& handle)
      : thread_([handle = Handle(handle), started = started_, gate = gate_, done = done_]() mutable {
          try {
            handle.submit([started, gate, done](auto&) {
              started.open();
              gate.wait();
              done.open();
            });
          } catch (const cox::CallError&) {  // refused: occupies nothing
            started.open();
            done.open();
          }
        }) {
    started_.wait();
  }
  ~Occupied() {
    release();
    done_.wait();
    thread_.join();
  }
  Occupied(const Occupied&) = delete;
  Occupied& operator=(const Occupied&) = delete;

  void release() const { gate_.open(); }

 private:
  Gate started_, gate_, done_;
  std::thread thread_;
};

/// Tells what became of a closure that holds a ticket() of it: how often it was destroyed and on which thread last.
class Fate {
 public:
  /// Copyable, so that any closure can hold it; the closure is dead when the last copy is.
  [[nodiscard]] std::shared_ptr<void> ticket() const {
    return {nullptr, [state = state_](void*) {
              state->thread = std::this_thread::get_id();
              state->deaths.fetch_add(1);
            }};
  }
  [[nodiscard]] int deaths() const { return state_->deaths.load(); }
  [[nodiscard]] std::thread::id thread() const { return state_->thread.load(); }

 private:
  struct State {
    std::atomic<int> deaths{0};
    std::atomic<std::thread::id> thread{};
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

/// The kind of the CallError that `f()` throws, or nothing if it throws none. Anything else passes through.
template <class F>
std::optional<cox::CallError::Kind> kind_of(F&& f) {
  try {
    std::forward<F>(f)();
    return std::nullopt;
  } catch (const cox::CallError& error) {
    return error.kind();
  }
}
using Kind = cox::CallError::Kind;

inline cox::CallOptions before(std::chrono::steady_clock::time_point deadline) {
  cox::CallOptions options;
  options.deadline = deadline;
  return options;
}
inline cox::CallOptions unless(std::stop_token stop) {
  cox::CallOptions options;
  options.stop = std::move(stop);
  return options;
}

/// Waits until every accepted task has ended, then returns the figures.
template <class Handle>
cox::Statistics at_rest(const Handle& handle) {
  cox::Statistics statistics;
  const bool rested = eventually([&] {
    statistics = handle.statistics();
    return statistics.depth == 0;
  });
  if (!rested) statistics.accepted = ~std::uint64_t{0};
  return statistics;
}

inline bool conserved(const cox::Statistics& s) {
  return s.accepted == s.completed + s.failed + s.cancelled + s.expired;
}

}  // namespace contract

// Catch2 prints what it compares.
namespace std {
inline ostream& operator<<(ostream& out, const optional<cox::CallError::Kind>& kind) {
  return out << (kind ? cox::to_string(*kind) : "no error");
}
}  // namespace std
