#pragma once

#include <coxswain/device_handle/base/unique_function.hpp>
#include <coxswain/device_handle/handle/device_handle.hpp>
#include <coxswain/tests/tools/flaw_period.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

// What a FlawedHandle does with the closures that are submitted: each breaks one law now and then.

namespace cox::stress {

/// Now and then holds a closure back and hands it over after the next one.
template <class S>
class SwappingFlaw {
 public:
  template <class F>
  void submit(DeviceHandle<S>& handle, F&& f) {
    const std::lock_guard lock(mutex_);
    if (!held_ && ++calls_ % flaw_period == 0) {
      held_.emplace(std::forward<F>(f));
      stream_ = StreamId::current();
      return;
    }
    handle.submit(std::forward<F>(f));
    if (!held_) return;
    const StreamScope scope(stream_);
    handle.submit([late = std::move(*held_)](S& service) mutable { late(service); });
    held_.reset();
  }

 private:
  std::mutex mutex_;
  std::uint64_t calls_ = 0;                       // guarded by mutex_
  std::optional<UniqueFunction<void(S&)>> held_;  // guarded by mutex_
  StreamId stream_;                               // guarded by mutex_
};

/// Keeps the order of each client thread, and no other: collects a client's closures and hands them over in batches.
template <class S>
class BatchingFlaw {
 public:
  template <class F>
  void submit(DeviceHandle<S>& handle, F&& f) {
    constexpr std::size_t batch = 16;
    const std::lock_guard lock(mutex_);
    std::vector<Waiting>& mine = waiting_[std::this_thread::get_id()];
    mine.push_back({std::forward<F>(f), StreamId::current()});
    if (mine.size() >= batch) hand_over(handle, mine);
  }
  void before_other_call(DeviceHandle<S>& handle) {
    const std::lock_guard lock(mutex_);
    hand_over(handle, waiting_[std::this_thread::get_id()]);
  }

 private:
  struct Waiting {
    UniqueFunction<void(S&)> closure;
    StreamId stream;
  };

  void hand_over(DeviceHandle<S>& handle, std::vector<Waiting>& closures) {
    for (Waiting& waiting : closures) {
      const StreamScope scope(waiting.stream);
      handle.submit([late = std::move(waiting.closure)](S& service) mutable { late(service); });
    }
    closures.clear();
  }

  std::mutex mutex_;
  std::map<std::thread::id, std::vector<Waiting>> waiting_;  // guarded by mutex_
};

/// Now and then accepts a closure and destroys it.
template <class S>
class DroppingFlaw {
 public:
  template <class F>
  void submit(DeviceHandle<S>& handle, F&& f) {
    if (++calls_ % flaw_period == 0) {
      const std::decay_t<F> dropped(std::forward<F>(f));
      return;
    }
    handle.submit(std::forward<F>(f));
  }

 private:
  std::atomic<std::uint64_t> calls_{0};
};

/// Now and then accepts a closure and keeps it for ever.
template <class S>
class KeepingFlaw {
 public:
  template <class F>
  void submit(DeviceHandle<S>& handle, F&& f) {
    if (++calls_ % flaw_period == 0) {
      const std::lock_guard lock(mutex_);
      kept_.emplace_back(std::forward<F>(f));
      return;
    }
    handle.submit(std::forward<F>(f));
  }

 private:
  std::atomic<std::uint64_t> calls_{0};
  std::mutex mutex_;
  std::vector<UniqueFunction<void(S&)>> kept_;  // guarded by mutex_
};

/// Now and then runs a closure twice.
template <class S>
class RepeatingFlaw {
 public:
  template <class F>
  void submit(DeviceHandle<S>& handle, F&& f) {
    if (++calls_ % flaw_period != 0) return handle.submit(std::forward<F>(f));
    handle.submit([f = std::decay_t<F>(std::forward<F>(f))](S& service) mutable {
      f(service);
      f(service);
    });
  }

 private:
  std::atomic<std::uint64_t> calls_{0};
};

/// Now and then swallows what a closure throws.
template <class S>
class SwallowingFlaw {
 public:
  template <class F>
  void submit(DeviceHandle<S>& handle, F&& f) {
    handle.submit([f = std::decay_t<F>(std::forward<F>(f))](S& service) mutable {
      try {
        f(service);
      } catch (...) {
        return;
      }
    });
  }
};

/// Now and then runs a closure under a stream of its own.
template <class S>
class StreamlessFlaw {
 public:
  template <class F>
  void submit(DeviceHandle<S>& handle, F&& f) {
    if (++calls_ % flaw_period != 0) return handle.submit(std::forward<F>(f));
    const StreamScope scope(StreamId::allocate());
    handle.submit(std::forward<F>(f));
  }

 private:
  std::atomic<std::uint64_t> calls_{0};
};

}  // namespace cox::stress
