#pragma once

#include <coxswain/runtime/base/access.hpp>
#include <coxswain/runtime/handle/managed_memory.hpp>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <utility>

namespace cox {

/// A buffer argument of a kernel: a window of an allocation, and how the kernel accesses it.
struct KernelBuffer {
  MemoryView memory;
  std::size_t offset_start = 0;                            ///< bytes left out at the front
  std::optional<std::size_t> size_in_used = std::nullopt;  ///< bytes of the window; std::nullopt: the whole allocation
  Access access = Access::Write;
};

/// The buffers of a launch, in order, decoded from their words: a whole allocation takes one word, a window takes
/// three (address and flags, offset, size). Every cache line of a launch that moves from one processor to another is
/// expensive, hence the compact encoding. Refers to the words; the owner of the words owns a reference to the memory of
/// each buffer.
class KernelBuffers {
 public:
  static constexpr std::size_t max_words_per_buffer = 3;

  class Iterator {
   public:
    using value_type = KernelBuffer;
    using difference_type = std::ptrdiff_t;

    Iterator() noexcept = default;
    explicit Iterator(const std::uint64_t* word) noexcept : word_(word) {}
    [[nodiscard]] KernelBuffer operator*() const noexcept {
      KernelBuffer buffer{.memory = MemoryView::from_bits(*word_ & ~(access_bits | windowed)),
                          .access = static_cast<Access>(*word_ & access_bits)};
      if (!is_windowed()) return buffer;
      buffer.offset_start = word_[1];
      buffer.size_in_used = word_[2];
      return buffer;
    }
    Iterator& operator++() noexcept {
      word_ += is_windowed() ? max_words_per_buffer : 1;
      return *this;
    }
    Iterator operator++(int) noexcept {
      const Iterator before = *this;
      ++*this;
      return before;
    }
    friend bool operator==(const Iterator&, const Iterator&) = default;

   private:
    [[nodiscard]] bool is_windowed() const noexcept { return (*word_ & windowed) != 0; }

    const std::uint64_t* word_ = nullptr;
  };

  explicit KernelBuffers(std::span<const std::uint64_t> words) noexcept : words_(words) {}

  [[nodiscard]] Iterator begin() const noexcept { return Iterator(words_.data()); }
  [[nodiscard]] Iterator end() const noexcept { return Iterator(words_.data() + words_.size()); }
  /// Number of buffers. Linear time.
  [[nodiscard]] std::size_t size() const noexcept {
    return static_cast<std::size_t>(std::ranges::distance(begin(), end()));
  }

  /// Passes the words of a buffer to `append(word)`, one by one. `memory`: a counted reference, which the words own.
  template <class Append>
  static void encode(MemoryView memory, std::size_t offset_start, std::size_t offset_end, std::size_t size_in_used,
                     Access access, Append append) noexcept {
    const std::uint64_t word = memory.bits() | static_cast<std::uint64_t>(access);
    if ((offset_start | offset_end) == 0) [[likely]]
      return append(word);
    append(word | windowed);
    append(offset_start);
    append(size_in_used);
  }
  /// For a copy of the words: adds a reference to the memory of each buffer.
  void add_references() const noexcept {
    for (const KernelBuffer buffer : *this) std::move(ManagedMemory(buffer.memory)).release();
  }
  /// For an owner that discards the words: drops the references.
  void drop_references() const noexcept {
    for (const KernelBuffer buffer : *this) ManagedMemory::adopt(buffer.memory);
  }

 private:
  // Flags in the lowest bits of a buffer's first word. These bits are 0 in the address that the word holds.
  static constexpr std::uint64_t access_bits = 3;
  static constexpr std::uint64_t windowed = 4;

  std::span<const std::uint64_t> words_;
};

}  // namespace cox
