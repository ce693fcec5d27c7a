#pragma once

#include <coxswain/runtime/place.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <source_location>
#include <vector>

namespace cox::detail {

/// The failures of a stream's queued work that nobody has been told yet (L12). Each has the position in the stream at
/// which it happened, so that a read or sync takes what came before it and nothing that came later. Any thread.
class StreamErrors {
 public:
  /// As many are kept (L7); the rest is counted.
  static constexpr std::size_t kept = 64;

  /// Throws std::bad_alloc.
  StreamErrors() { failures_.reserve(kept); }  // so that add() finds room

  void add(std::uint64_t position, std::exception_ptr error) noexcept;
  [[nodiscard]] bool empty() const noexcept { return !any_.load(std::memory_order_acquire); }
  /// ServerError Unhealthy with all failures before `position`, which are forgotten; null if there are none.
  [[nodiscard]] std::exception_ptr take_before(std::uint64_t position, const Place& place, std::source_location site);
  /// Forgets the failures after `first` and before `last`, which somebody else has, and returns the first of them; null
  /// if there are none.
  std::exception_ptr forget_between(std::uint64_t first, std::uint64_t last);
  /// As take_before for all failures, but they stay.
  [[nodiscard]] std::exception_ptr peek(const Place& place, std::source_location site) const;

 private:
  struct Failure {
    std::uint64_t position;
    std::exception_ptr error;
  };
  static std::exception_ptr unhealthy(std::vector<Failure> failures, std::size_t forgotten, const Place& place,
                                      std::source_location site);

  // Under the lock, when failures_ has changed. Release: who finds that there are failures sees what led to them.
  void note_whether_any() noexcept { any_.store(!failures_.empty(), std::memory_order_release); }

  // Asked before the lock is: its line of memory goes to and fro between who queues work and who waits for it.
  std::atomic<bool> any_{false};
  mutable std::mutex mutex_;
  std::vector<Failure> failures_;  // guarded by mutex_
  std::size_t forgotten_ = 0;      // guarded by mutex_
};

}  // namespace cox::detail
