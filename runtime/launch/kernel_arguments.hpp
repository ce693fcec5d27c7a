#pragma once

#include <coxswain/runtime/base/access.hpp>
#include <coxswain/runtime/base/heap_vector.hpp>
#include <coxswain/runtime/base/small_vector.hpp>
#include <coxswain/runtime/handle/binding.hpp>
#include <coxswain/runtime/handle/handle.hpp>
#include <coxswain/runtime/launch/kernel_buffers.hpp>
#include <coxswain/runtime/launch/scalar_types.hpp>
#include <coxswain/runtime/tensor/tensor_map.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <source_location>
#include <span>
#include <type_traits>
#include <utility>

namespace cox {

/// Scalars and metadata of a kernel, as 64-bit words. The words before `dynamic_metadata_offset` are static: a GPU
/// kernel receives them as a parameter. The words after it are dynamic, since their number may vary: a GPU kernel reads
/// them from device memory.
struct MetadataBindingInfo {
  SmallVector<std::uint64_t, 4> data;
  std::size_t dynamic_metadata_offset = 0;  ///< number of static words
};

/// The arguments of a launch as a server reads them. Refers to the record that owns them.
struct LaunchArguments {
  KernelBuffers buffers;
  std::span<const std::uint64_t> words;  ///< scalars and metadata; the static words first
  std::size_t static_words;              ///< number of static words
  std::span<const TensorMapArgument> tensor_maps;
  ScalarTypes types = {};  ///< of the static words
};

/// The arguments of one kernel launch. At least eight buffers and four scalars are stored without an allocation. Stored
/// as one record of 64-bit words: the buffers, then the static words, then the dynamic ones. A server reads the words
/// where they are, without unpacking them. Holds a reference to the memory of each buffer.
///
/// The with_ functions modify this object and return it: `KernelArguments{}.with_buffer(x).with_scalar(2.0F)`, or
/// `arguments.with_buffer(x)`. If one throws, nothing has been added.
class KernelArguments {
 public:
  class Compact;

  KernelArguments() noexcept = default;
  KernelArguments(const KernelArguments& other)
      : words_(other.words_),
        buffer_words_(other.buffer_words_),
        static_words_(other.static_words_),
        scalar_types_(other.scalar_types_),
        tensor_maps_(other.tensor_maps_) {
    buffers().add_references();
  }
  KernelArguments(KernelArguments&& other) noexcept
      : words_(std::move(other.words_)),
        buffer_words_(std::exchange(other.buffer_words_, 0)),
        static_words_(std::exchange(other.static_words_, 0)),
        scalar_types_(std::exchange(other.scalar_types_, 0)),
        tensor_maps_(std::move(other.tensor_maps_)) {}
  KernelArguments& operator=(KernelArguments other) noexcept {
    std::swap(words_, other.words_);
    std::swap(buffer_words_, other.buffer_words_);
    std::swap(static_words_, other.static_words_);
    std::swap(scalar_types_, other.scalar_types_);
    tensor_maps_ = std::move(other.tensor_maps_);
    return *this;
  }
  ~KernelArguments() { buffers().drop_references(); }

  /// Appends a buffer. The kernel is assumed to read and write it, unless `access` says otherwise. Throws
  /// std::bad_alloc.
  KernelArguments& with_buffer(Binding binding, Access access = Access::Write) & {
    reserve(KernelBuffers::max_words_per_buffer);
    const std::size_t size = binding.size_in_used();
    append_buffer(std::move(binding.memory).release(), binding.offset_start, binding.offset_end, size, access);
    return *this;
  }
  /// Same as with_buffer(handle.binding()), with half the instructions.
  KernelArguments& with_buffer(const Handle& handle, Access access = Access::Write) & {
    reserve(KernelBuffers::max_words_per_buffer);
    append_buffer(handle.memory().reference().release(), handle.offset_start(), handle.offset_end(),
                  handle.size_in_used(), access);
    return *this;
  }
  /// Replaces all scalars and metadata. A kernel may read these words as scalars of any type.
  KernelArguments& with_info(const MetadataBindingInfo& metadata) & {
    reserve(metadata.data.size());
    while (words_.size() > buffer_words_) words_.pop_back();
    for (const std::uint64_t word : metadata.data) words_.unchecked_push_back(word);
    static_words_ = static_cast<std::uint32_t>(std::min(metadata.dynamic_metadata_offset, metadata.data.size()));
    scalar_types_ = 0;
    return *this;
  }
  /// Appends `value` to the static words: one word, or as many words as a larger value needs. Its type is recorded: a
  /// host kernel that reads it as another type fails (KernelContext::scalar).
  template <class T>
    requires std::is_trivially_copyable_v<T>
  KernelArguments& with_scalar(const T& value) & {
    constexpr std::size_t words = scalar_words<T>;
    reserve(words);
    for (std::size_t i = 0; i < words; ++i) {
      std::uint64_t word = 0;
      std::memcpy(&word, reinterpret_cast<const std::byte*>(&value) + i * sizeof(word),
                  std::min(sizeof(word), sizeof(T) - i * sizeof(word)));
      words_.unchecked_push_back(word);
    }
    scalar_types_ = ScalarTypes::append<T>(scalar_types_);
    static_words_ += words;
    move_last_to(buffer_words_ + static_words_, words);
    return *this;
  }
  /// Appends a tensor map. The kernel is assumed to read and write the memory, unless `access` says otherwise. Throws
  /// ServerError Validation if the tensor map is invalid or reaches beyond the memory.
  KernelArguments& with_tensor_map(Binding binding, TensorMapDescriptor descriptor, Access access = Access::Write,
                                   std::source_location site = std::source_location::current()) & {
    validate_tensor_map(descriptor, binding.size_in_used(), site);
    tensor_maps_.push_back({std::move(binding), std::move(descriptor), access});
    return *this;
  }
  KernelArguments& with_tensor_map(const Handle& handle, TensorMapDescriptor descriptor, Access access = Access::Write,
                                   std::source_location site = std::source_location::current()) & {
    return with_tensor_map(handle.binding(), std::move(descriptor), access, site);
  }

  // The same for a temporary object, which can then be passed to launch().

  KernelArguments&& with_buffer(Binding binding, Access access = Access::Write) && {
    return std::move(with_buffer(std::move(binding), access));
  }
  KernelArguments&& with_buffer(const Handle& handle, Access access = Access::Write) && {
    return std::move(with_buffer(handle, access));
  }
  KernelArguments&& with_info(const MetadataBindingInfo& metadata) && { return std::move(with_info(metadata)); }
  template <class T>
    requires std::is_trivially_copyable_v<T>
  KernelArguments&& with_scalar(const T& value) && {
    return std::move(with_scalar(value));
  }
  KernelArguments&& with_tensor_map(Binding binding, TensorMapDescriptor descriptor, Access access = Access::Write,
                                    std::source_location site = std::source_location::current()) && {
    return std::move(with_tensor_map(std::move(binding), std::move(descriptor), access, site));
  }
  KernelArguments&& with_tensor_map(const Handle& handle, TensorMapDescriptor descriptor, Access access = Access::Write,
                                    std::source_location site = std::source_location::current()) && {
    return std::move(with_tensor_map(handle.binding(), std::move(descriptor), access, site));
  }

  /// The scalars and metadata, for with_info().
  [[nodiscard]] MetadataBindingInfo info() const {
    return {{words_.begin() + buffer_words_, words_.end()}, static_words_};
  }
  /// Valid while this object exists and is not modified.
  [[nodiscard]] LaunchArguments view() const noexcept {
    const std::span<const std::uint64_t> words(words_.data(), words_.size());
    return {buffers(),
            words.subspan(buffer_words_),
            static_words_,
            {tensor_maps_.begin(), tensor_maps_.end()},
            ScalarTypes(scalar_types_, static_words_)};
  }

 private:
  [[nodiscard]] KernelBuffers buffers() const noexcept {
    return KernelBuffers({words_.data(), std::size_t{buffer_words_}});
  }
  void reserve(std::size_t more) {
    if (words_.capacity() - words_.size() < more) [[unlikely]]
      words_.reserve(words_.size() + std::max(more, words_.size()));
  }
  // Moves the last `count` words so that they end at `end`.
  void move_last_to(std::size_t end, std::size_t count) noexcept {
    if (end != words_.size()) [[unlikely]]
      std::rotate(words_.begin() + (end - count), words_.end() - count, words_.end());
  }
  // Precondition: reserve().
  void append_buffer(MemoryView memory, std::size_t offset_start, std::size_t offset_end, std::size_t size_in_used,
                     Access access) noexcept {
    const std::size_t before = words_.size();
    KernelBuffers::encode(memory, offset_start, offset_end, size_in_used, access,
                          [this](std::uint64_t word) { words_.unchecked_push_back(word); });
    const std::size_t added = words_.size() - before;
    buffer_words_ += static_cast<std::uint32_t>(added);
    move_last_to(buffer_words_, added);
  }

  SmallVector<std::uint64_t, 28> words_;
  std::uint32_t buffer_words_ = 0;
  std::uint32_t static_words_ = 0;
  std::uint64_t scalar_types_ = 0;  // see ScalarTypes
  HeapVector<TensorMapArgument> tensor_maps_;
};

/// The record of KernelArguments with room for 12 words, 10 of them static, and no tensor maps, for the queue to the
/// device thread; the arguments of most launches fit. A launch with compact arguments takes three cache lines of the
/// queue, with KernelArguments six. Each cache line costs the client up to 10 ns.
class KernelArguments::Compact {
 public:
  [[nodiscard]] static bool fits(const KernelArguments& arguments) noexcept {
    return arguments.words_.size() <= max_words && arguments.static_words_ <= max_static_words &&
           arguments.tensor_maps_.empty();
  }

  /// Moves the words out of `arguments`, with the references to memory that the buffers' words hold; the destructor
  /// drops these. Precondition: fits(arguments).
  explicit Compact(KernelArguments&& arguments) noexcept
      : header_(arguments.words_.size() | std::uint64_t{arguments.buffer_words_} << buffer_words_at |
                std::uint64_t{arguments.static_words_} << static_words_at | arguments.scalar_types_ << types_at) {
    std::ranges::copy(arguments.words_, words_.begin());
    arguments.words_.clear();
    arguments.buffer_words_ = 0;
    arguments.static_words_ = 0;
    arguments.scalar_types_ = 0;
  }
  Compact(Compact&& other) noexcept : header_(std::exchange(other.header_, 0)), words_(other.words_) {}
  Compact& operator=(Compact&&) = delete;
  ~Compact() { view().buffers.drop_references(); }

  [[nodiscard]] LaunchArguments view() const noexcept {
    const std::span<const std::uint64_t> words(words_.data(), header_ & 255U);
    const std::size_t buffer_words = (header_ >> buffer_words_at) & 255U;
    const std::size_t static_words = (header_ >> static_words_at) & 255U;
    return {KernelBuffers(words.first(buffer_words)),
            words.subspan(buffer_words),
            static_words,
            {},
            ScalarTypes(header_ >> types_at, static_words)};
  }

 private:
  static constexpr std::size_t max_words = 12;
  static constexpr std::size_t max_static_words = 10;
  // The header: the number of words, of words of buffers and of static words, 8 bits each; types of the static words.
  static constexpr unsigned buffer_words_at = 8;
  static constexpr unsigned static_words_at = 16;
  static constexpr unsigned types_at = 24;
  static_assert(types_at + max_static_words * ScalarTypes::bits_per_word == 64);

  std::uint64_t header_;
  std::array<std::uint64_t, max_words> words_;
};
static_assert(sizeof(KernelArguments::Compact) == 104, "with the rest of a launch, three cache lines");

}  // namespace cox
