#pragma once

namespace cox::detail {

/// While one lives, what its thread submits neither waits for room in a device's queue nor is refused for lack of it:
/// for calls inside a lock, where a wait for a device thread that wants the same lock would never end. The caller waits
/// for room before it takes the lock, so that a queue exceeds its capacity by one call of each thread at most.
class ExceedCapacity {
 public:
  ExceedCapacity() noexcept { ++count_; }
  ExceedCapacity(const ExceedCapacity&) = delete;
  ExceedCapacity& operator=(const ExceedCapacity&) = delete;
  ~ExceedCapacity() { --count_; }

  /// Whether this thread is inside one.
  [[nodiscard]] static bool active() noexcept { return count_ != 0; }

 private:
  static inline constinit thread_local unsigned count_ = 0;
};

}  // namespace cox::detail
