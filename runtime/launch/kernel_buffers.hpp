#pragma once

#include <coxswain/runtime/base/access.hpp>
#include <coxswain/runtime/base/small_vector.hpp>
#include <coxswain/runtime/handle/binding.hpp>
#include <coxswain/runtime/handle/handle.hpp>
#include <coxswain/runtime/handle/managed_memory.hpp>

#include <algorithm>
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

/// The buffers of a launch, in order. Holds a reference to the memory of each buffer. Every cache line of a launch that
/// moves from one processor to another is expensive, so the encoding is compact: a whole allocation takes one word, a
/// window takes three. At least eight buffers are stored without an allocation.
class KernelBuffers {
 public:
  using Word = std::uint64_t;
  class Iterator;

  KernelBuffers() noexcept = default;
  KernelBuffers(const KernelBuffers& other);
  KernelBuffers(KernelBuffers&&) noexcept = default;
  KernelBuffers& operator=(KernelBuffers other) noexcept {
    drop_all();
    words_ = std::move(other.words_);
    return *this;
  }
  ~KernelBuffers() { drop_all(); }

  /// Throws std::bad_alloc.
  void push_back(Binding binding, Access access = Access::Write) {
    const std::size_t size = binding.size_in_used();
    append(std::move(binding.memory), binding.offset_start, binding.offset_end, size, access);
  }
  /// Same as push_back(handle.binding()), with half the instructions. Throws std::bad_alloc.
  void push_back(const Handle& handle, Access access = Access::Write) {
    append(handle.memory().reference(), handle.offset_start(), handle.offset_end(), handle.size_in_used(), access);
  }

  [[nodiscard]] Iterator begin() const noexcept;
  [[nodiscard]] Iterator end() const noexcept;
  /// Number of buffers. Linear time.
  [[nodiscard]] std::size_t size() const noexcept;

  /// The encoded buffers. This object keeps their references.
  [[nodiscard]] std::span<const Word> words() const noexcept { return {words_.data(), words_.size()}; }
  /// Copies words() to `destination` and transfers their references to the caller. This object is empty afterwards.
  void take_words(std::span<Word> destination) noexcept;
  /// Takes over the references in `words`, which were copied by take_words(). Precondition: this object is empty.
  /// Throws std::bad_alloc, but not for up to 24 words; the caller then keeps the references.
  void adopt_words(std::span<const Word> words);

 private:
  // Flags in the lowest bits of a buffer's first word. These bits are 0 in the address that the word holds.
  static constexpr Word access_bits = 3;
  static constexpr Word windowed = 4;
  static constexpr std::size_t max_words_per_buffer = 3;  // address, offset, size

  void drop_all() noexcept;
  void make_room() {
    if (words_.capacity() - words_.size() < max_words_per_buffer) [[unlikely]]
      words_.reserve(2 * words_.capacity());
  }
  void append(ManagedMemory memory, std::size_t offset_start, std::size_t offset_end, std::size_t size_in_used,
              Access access) {
    make_room();
    const Word word = std::move(memory).release().bits() | static_cast<Word>(access);
    if ((offset_start | offset_end) == 0) [[likely]]
      return words_.unchecked_push_back(word);
    words_.unchecked_push_back(word | windowed);
    words_.unchecked_push_back(offset_start);
    words_.unchecked_push_back(size_in_used);
  }

  SmallVector<Word, 24> words_;
};

class KernelBuffers::Iterator {
 public:
  using value_type = KernelBuffer;
  using difference_type = std::ptrdiff_t;

  Iterator() noexcept = default;
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
  friend class KernelBuffers;
  explicit Iterator(const Word* word) noexcept : word_(word) {}
  [[nodiscard]] bool is_windowed() const noexcept { return (*word_ & windowed) != 0; }

  const Word* word_ = nullptr;
};

inline KernelBuffers::Iterator KernelBuffers::begin() const noexcept { return Iterator(words_.begin()); }
inline KernelBuffers::Iterator KernelBuffers::end() const noexcept { return Iterator(words_.end()); }

inline std::size_t KernelBuffers::size() const noexcept {
  return static_cast<std::size_t>(std::ranges::distance(begin(), end()));
}

inline KernelBuffers::KernelBuffers(const KernelBuffers& other) : words_(other.words_) {
  for (const KernelBuffer buffer : *this) std::move(ManagedMemory(buffer.memory)).release();
}

inline void KernelBuffers::drop_all() noexcept {
  for (const KernelBuffer buffer : *this) ManagedMemory::adopt(buffer.memory);
  words_.clear();
}

inline void KernelBuffers::take_words(std::span<Word> destination) noexcept {
  std::ranges::copy(words(), destination.begin());
  words_.clear();
}

inline void KernelBuffers::adopt_words(std::span<const Word> words) {
  words_.reserve(words.size());
  for (const Word word : words) words_.unchecked_push_back(word);
}

}  // namespace cox
