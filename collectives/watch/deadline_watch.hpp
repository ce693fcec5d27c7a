#pragma once

#include <coxswain/collectives/watch/watchdog.hpp>

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <set>

namespace cox::detail {

/// Looks after the deadlines of all objects of one kind in the process, by one thread that exists only while there is a
/// deadline. T derives from std::enable_shared_from_this and has `std::optional<Watchdog::Time> check_deadlines(Time
/// now) noexcept`, which does what is due at `now` and returns its next deadline. Any thread.
///
/// An object need not say when its deadline changes: it is checked whenever one of any object is due.
template <class T>
class DeadlineWatch {
 public:
  using Time = Watchdog::Time;

  /// Never destroyed: the watchdog's thread may be asleep when the process ends.
  [[nodiscard]] static DeadlineWatch& of_process() {
    static auto& watch = *new DeadlineWatch;
    return watch;
  }

  /// The object is checked, at `deadline` at the latest. Throws std::bad_alloc, std::system_error (no thread); the
  /// object must be removed in any case. Adding it again moves the deadline forward only.
  void add(T& object, Time deadline) {
    {
      const std::lock_guard lock(mutex_);
      objects_.insert(&object);
    }
    watchdog_.watch(deadline);
  }
  /// By the destructor of the object. Does nothing if it is not there.
  void remove(T& object) noexcept {
    const std::lock_guard lock(mutex_);
    objects_.erase(&object);
  }
  /// Ends the thread if no object needs it: checks all of them now.
  void recheck() { watchdog_.recheck(); }

  /// Calls `f(object)` for each that is not being destroyed, with no lock held. Allocates nothing.
  template <class F>
  void for_each(F&& f) noexcept {
    T* last = nullptr;
    while (const std::shared_ptr<T> object = after(last)) {
      last = object.get();
      f(*object);
    }
  }

 private:
  std::optional<Time> check(Time now) noexcept {
    std::optional<Time> next;
    for_each([&](T& object) {
      if (const std::optional<Time> when = object.check_deadlines(now)) next = std::min(next.value_or(*when), *when);
    });
    return next;
  }

  // The one behind `last` in the order of addresses, which may be that of one that is gone.
  std::shared_ptr<T> after(T* last) noexcept {
    const std::lock_guard lock(mutex_);
    for (auto next = objects_.upper_bound(last); next != objects_.end(); ++next)
      if (auto object = std::static_pointer_cast<T>((*next)->weak_from_this().lock())) return object;
    return nullptr;
  }

  std::mutex mutex_;
  std::set<T*> objects_;  // guarded by mutex_
  Watchdog watchdog_{[this](Time now) { return check(now); }};
};

}  // namespace cox::detail
