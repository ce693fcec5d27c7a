#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <set>
#include <span>

namespace cox::detail {

/// Up to which number all operations of a sequence have ended. They are noted in any order. Any thread.
class CompletedPrefix {
 public:
  /// These operations have ended; each is noted once. Returns the last operation of the prefix if it has grown. Throws
  /// std::bad_alloc.
  [[nodiscard]] std::optional<std::uint64_t> note(std::span<const std::uint64_t> ended) {
    const std::lock_guard lock(mutex_);
    const std::uint64_t before = last_;
    for (const std::uint64_t each : ended) {
      if (each == last_ + 1)
        ++last_;
      else
        ahead_.insert(each);
      while (!ahead_.empty() && *ahead_.begin() == last_ + 1) {
        ahead_.erase(ahead_.begin());
        ++last_;
      }
    }
    return last_ == before ? std::nullopt : std::optional(last_);
  }

 private:
  std::mutex mutex_;
  std::uint64_t last_ = 0;         // guarded by mutex_, like ahead_
  std::set<std::uint64_t> ahead_;  // later ones that have ended
};

}  // namespace cox::detail
