#pragma once

#include <cstdint>

namespace cox::stress {

/// The outcomes that a client expects for its closures on one device.
struct Tally {
  std::uint64_t completed = 0;
  std::uint64_t failed = 0;
  std::uint64_t cancelled = 0;
  std::uint64_t expired = 0;
  std::uint64_t audited = 0;   ///< Of these, those that ran through the OrderAuditor.
  std::uint64_t canaries = 0;  ///< Handed to the device, whether accepted or not.

  [[nodiscard]] std::uint64_t accepted() const noexcept { return completed + failed + cancelled + expired; }

  Tally& operator+=(const Tally& other) noexcept {
    completed += other.completed;
    failed += other.failed;
    cancelled += other.cancelled;
    expired += other.expired;
    audited += other.audited;
    canaries += other.canaries;
    return *this;
  }
};

}  // namespace cox::stress
