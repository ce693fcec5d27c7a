#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace cox {

/// The mark of a kept set on one device, in one word that is changed by one compare-and-swap: the generation of the
/// process that may write (20 bits), whether an update is open (1 bit), which of two copies holds the last committed
/// contents (1 bit; 0 in the mode in place), and the epoch of the open or last update (42 bits).
struct KeptMark {
  static constexpr unsigned epoch_bits = 42;
  static constexpr std::uint64_t max_epoch = (std::uint64_t{1} << epoch_bits) - 1;
  static constexpr std::uint64_t max_generation = (std::uint64_t{1} << 20U) - 1;

  std::uint64_t generation = 0;
  bool updating = false;
  unsigned copy = 0;
  std::uint64_t epoch = 0;

  [[nodiscard]] constexpr std::uint64_t word() const noexcept {
    return generation << 44U | std::uint64_t{updating} << 43U | std::uint64_t{copy & 1U} << 42U | epoch;
  }
  [[nodiscard]] static constexpr KeptMark from(std::uint64_t word) noexcept {
    return {.generation = word >> 44U,
            .updating = (word >> 43U & 1U) != 0,
            .copy = static_cast<unsigned>(word >> 42U & 1U),
            .epoch = word & max_epoch};
  }
  friend bool operator==(const KeptMark&, const KeptMark&) = default;
};

/// The record of a set on a device, in kept memory of that device. The device writes it, in stream order, so it
/// describes the contents of the memory at every moment, independent of the host. New memory is zero: no update was
/// begun.
struct alignas(64) KeptRecord {
  std::uint64_t mark = 0;                    ///< KeptMark::word
  std::array<std::uint64_t, 2> committed{};  ///< epoch of the last commit of each copy; 0: none
};

/// One change of a record.
struct KeptMarkChange {
  enum class Kind : std::uint8_t {
    Adopt,   ///< The process takes the record over: updates that an earlier one queued can no longer begin.
    Begin,   ///< An update begins.
    Commit,  ///< The open update is complete.
  };

  Kind kind = Kind::Begin;
  std::uint64_t generation = 0;  ///< of the process
  std::uint64_t epoch = 0;       ///< Begin: of the update; 0: that of the last one plus 1. Commit: 0 or as begun
  bool two_copies = false;       ///< the update writes the other copy, which commit makes the current one
  /// Begin: the current copy, as the host counts; std::nullopt: as in the record. It differs from the record, while an
  /// update is open, if the commit of that update was refused: then the copy holds no epoch from now on. The new update
  /// writes the other copy, so no copy is whole until the next commit.
  std::optional<unsigned> copy = std::nullopt;

  /// Makes the change, on the host. Returns false, and leaves the mark as it is, if the record belongs to another
  /// process, if `epoch` is not greater than that of the last update (Begin), or if no update is open (Commit).
  [[nodiscard]] bool apply(KeptRecord& record) const noexcept {
    const std::atomic_ref mark(record.mark);
    std::uint64_t before = mark.load(std::memory_order_acquire);
    KeptMark now = KeptMark::from(before);
    if (kind == Kind::Adopt) {
      do {
        now = KeptMark::from(before);
        now.generation = generation;
      } while (!mark.compare_exchange_weak(before, now.word(), std::memory_order_acq_rel));
      return true;
    }
    if (now.generation != generation) return false;
    if (kind == Kind::Begin) {
      if (epoch != 0 && epoch <= now.epoch) return false;
      const unsigned current = copy.value_or(now.copy);
      // Before the mark makes the copy the current one. It was being written, so the record stays true if the mark is
      // refused below.
      if (now.updating && current != now.copy)
        std::atomic_ref(record.committed[current]).store(0, std::memory_order_release);
      now.epoch = epoch != 0 ? epoch : now.epoch + 1;
      now.updating = true;
      now.copy = current;
      return mark.compare_exchange_strong(before, now.word(), std::memory_order_acq_rel);
    }
    if (!now.updating || (epoch != 0 && epoch != now.epoch)) return false;
    if (two_copies) now.copy ^= 1U;
    now.updating = false;
    std::atomic_ref(record.committed[now.copy]).store(now.epoch, std::memory_order_release);
    return mark.compare_exchange_strong(before, now.word(), std::memory_order_acq_rel);
  }
};

}  // namespace cox
