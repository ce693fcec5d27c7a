#pragma once

#include <coxswain/collectives/watch/watchdog.hpp>

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <set>

namespace cox::detail {

/// Checks the deadlines of all objects of one type in the process, on one thread that exists only while there is a
/// deadline. T derives from std::enable_shared_from_this and has `std::optional<Watchdog::Time> check_deadlines(Time
/// now) noexcept`, which handles the deadlines that are due at `now` and returns the next one. Any thread.
///
/// An object need not report changes of its deadline: all objects are checked whenever the deadline of any one is due.
template <class T>
class DeadlineWatch {
 public:
  using Time = Watchdog::Time;

  /// Never destroyed: the watchdog's thread may be asleep when the process ends.
  [[nodiscard]] static DeadlineWatch& of_process() {
    static auto& watch = *new DeadlineWatch;
    return watch;
  }

  /// From now on the object is checked, the first time at `deadline` at the latest. Throws std::bad_alloc,
  /// std::system_error (no thread); the object must be removed even then. Adding it again can only make its deadline
  /// earlier.
  void add(T& object, Time deadline) {
    {
      const std::lock_guard lock(mutex_);
      objects_.insert(&object);
    }
    watchdog_.watch(deadline);
  }
  /// The destructor of the object must call this. Does nothing if the object was not added.
  void remove(T& object) noexcept {
    const std::lock_guard lock(mutex_);
    objects_.erase(&object);
  }
  /// Checks all objects now, which ends the thread if none has a deadline.
  void recheck() { watchdog_.recheck(); }

  /// Calls `f(object)` for each object that is not being destroyed, with no lock held. Does not allocate.
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

  // The next object after address `last`, in the order of addresses. The object at `last` may have been destroyed.
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
