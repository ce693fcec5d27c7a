#pragma once

#include <coxswain/runtime/bytes/access_policy.hpp>
#include <coxswain/runtime/bytes/byte_source.hpp>
#include <coxswain/runtime/bytes/host_allocation.hpp>
#include <coxswain/runtime/bytes/vector_allocation.hpp>
#include <coxswain/runtime/error/io_error.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace cox {

class LazyAllocation;

/// A host buffer: what uploads take and downloads give. Move-only; a moved-from Bytes is empty.
///
/// Several Bytes may stand on one allocation (share, slice, split) without seeing each other's changes: a non-const
/// access first copies the bytes, and only those, if anyone else stands on the allocation too, or if it must not be
/// written to. To only look at shared bytes, look through a const reference (std::as_const).
///
/// Lazy bytes (from_file) are read into memory by the first access to their content, once for all who share them. That
/// blocks, and throws IoError FileUnreadable, FileTooShort or OutOfHostMemory; the next access then tries again. size,
/// share, slice and split read nothing; copy_to, to_vector, copy and BytesReader read, but keep nothing in memory.
///
/// May be handed to any thread. Const calls of one Bytes may run side by side, and any calls of different Bytes that
/// share an allocation. Who drops the last one gives the memory back, on that thread.
class Bytes {
 public:
  /// What gives adopted memory back; must not throw.
  using Release = void (*)(void* context) noexcept;
  /// Memory that Bytes allocates itself starts at a multiple of this.
  static constexpr std::size_t alignment = 64;

  Bytes() noexcept = default;
  Bytes(Bytes&& other) noexcept { swap(other); }
  Bytes& operator=(Bytes&& other) noexcept {
    Bytes(std::move(other)).swap(*this);
    return *this;
  }
  ~Bytes() {
    if (allocation_ != nullptr && allocation_->drop()) delete allocation_;
  }

  // Making
  // ---------------------------------------------------------------------------------------------------------------

  /// `size` bytes whose content is not defined. Throws IoError OutOfHostMemory.
  [[nodiscard]] static Bytes uninitialized(std::size_t size);
  /// `size` zero bytes. Throws IoError OutOfHostMemory.
  [[nodiscard]] static Bytes zeroed(std::size_t size);
  /// A copy of `data`. Throws IoError OutOfHostMemory.
  [[nodiscard]] static Bytes copy_of(std::span<const std::byte> data);
  template <class T>
    requires std::is_trivially_copyable_v<T>
  [[nodiscard]] static Bytes copy_of(std::span<const T> data) {
    return copy_of(std::as_bytes(data));
  }
  template <class T>
    requires std::is_trivially_copyable_v<T>
  [[nodiscard]] static Bytes copy_of(const std::vector<T>& data) {
    return copy_of(std::as_bytes(std::span<const T>(data)));
  }
  /// Takes the vector over without copying its elements; its own alignment stays. Throws std::bad_alloc.
  template <class T>
    requires std::is_trivially_copyable_v<T>
  [[nodiscard]] static Bytes from_vector(std::vector<T> data) {
    return from_allocation(std::make_unique<detail::VectorAllocation<T>>(std::move(data)));
  }
  /// `size` bytes from `offset` of a file on, not read and not even looked for yet. Whether the file changes later is
  /// up to the caller: what is read is what it has then. Throws IoError OutOfBounds if no file can reach that far.
  [[nodiscard]] static Bytes from_file(std::string path, std::uint64_t offset, std::size_t size);
  /// Memory of a server, or any other owner; given back by its destructor. Null makes empty bytes.
  [[nodiscard]] static Bytes from_allocation(std::unique_ptr<HostAllocation> allocation) noexcept;
  /// Memory that others look at too: it is never written to. `keeper`, if there is one, is dropped with the last Bytes.
  /// Throws std::bad_alloc.
  [[nodiscard]] static Bytes from_shared(std::shared_ptr<const void> keeper, std::span<const std::byte> data,
                                         AllocationProperty property = AllocationProperty::Other);
  /// Owns `size` bytes at `data` from now on; calls `release(context)` once, when they are no longer needed. Throws
  /// std::bad_alloc, after releasing.
  [[nodiscard]] static Bytes adopt(std::byte* data, std::size_t size, void* context, Release release);

  // Facts; none of them reads or allocates
  // -------------------------------------------------------------------------------

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  /// Where the memory is from. Bytes that were copied before a change are Native, whatever they were.
  [[nodiscard]] AllocationProperty property() const noexcept {
    return allocation_ == nullptr ? AllocationProperty::Native : allocation_->property();
  }
  /// The content is in memory: const accesses neither block nor throw.
  [[nodiscard]] bool is_resident() const noexcept { return size_ == 0 || resident() != nullptr; }
  /// Bytes that append can grow to in place; size() if the next change copies.
  [[nodiscard]] std::size_t capacity() const noexcept;

  // Content
  // --------------------------------------------------------------------------------------------------------------

  /// Null if empty, unless the owner of the memory has it otherwise. Throws as the class says.
  [[nodiscard]] const std::byte* data() const { return resident() != nullptr || size_ == 0 ? resident() : load(); }
  /// For writing: copies if it must. Throws as the class says.
  [[nodiscard]] std::byte* data() { return exclusive(AccessPolicy::AllowCopy); }
  /// Throws also IoError WouldCopy, if that is the policy.
  [[nodiscard]] std::span<const std::byte> span(AccessPolicy policy = AccessPolicy::AllowCopy) const {
    if (policy == AccessPolicy::ZeroCopy) require_resident();
    return {data(), size_};
  }
  [[nodiscard]] std::span<std::byte> span(AccessPolicy policy = AccessPolicy::AllowCopy) {
    return {exclusive(policy), size_};
  }
  /// The bytes as elements of T. Throws IoError ElementSize if the size is no multiple of sizeof(T) or the data is not
  /// aligned for T.
  template <class T>
    requires std::is_trivially_copyable_v<T>
  [[nodiscard]] std::span<const T> as() const {
    require_whole_elements(sizeof(T));
    const std::byte* const start = data();
    require_aligned(start, alignof(T));
    return {reinterpret_cast<const T*>(start), size_ / sizeof(T)};
  }
  template <class T>
    requires std::is_trivially_copyable_v<T>
  [[nodiscard]] std::span<T> as() {
    require_whole_elements(sizeof(T));
    std::byte* const start = data();
    require_aligned(start, alignof(T));
    return {reinterpret_cast<T*>(start), size_ / sizeof(T)};
  }
  /// Fills `destination` with the destination.size() bytes from `offset` on. Lazy bytes come straight from where they
  /// are and stay there. Throws IoError OutOfBounds, and as the class says.
  void copy_to(std::span<std::byte> destination, std::size_t offset = 0) const;
  /// A copy of the bytes in memory of its own. Throws as the class says.
  [[nodiscard]] Bytes copy() const;
  /// A copy of the bytes as elements of T, whatever their alignment. Throws IoError ElementSize, and as the class says.
  template <class T>
    requires std::is_trivially_copyable_v<T>
  [[nodiscard]] std::vector<T> to_vector() const {
    require_whole_elements(sizeof(T));
    std::vector<T> elements(size_ / sizeof(T));
    copy_to(std::as_writable_bytes(std::span<T>(elements)));
    return elements;
  }
  /// The vector of T that from_vector took, without copying; these bytes are empty then. Nothing, and no change, if the
  /// memory is no such vector, or is shared, or this is a part of it.
  template <class T>
    requires std::is_trivially_copyable_v<T>
  [[nodiscard]] std::optional<std::vector<T>> try_into_vector() && noexcept {
    auto* const owner = dynamic_cast<detail::VectorAllocation<T>*>(allocation_);
    if (owner == nullptr || size_ != owner->size() || !owner->has_one_owner()) return std::nullopt;
    std::optional<std::vector<T>> elements(owner->take());
    Bytes().swap(*this);
    return elements;
  }

  // Parts
  // ----------------------------------------------------------------------------------------------------------------

  /// The same bytes once more, without copying.
  [[nodiscard]] Bytes share() const noexcept {
    if (allocation_ != nullptr) allocation_->retain();
    return {allocation_, resident(), size_};
  }
  /// `size` bytes from `offset` on, without copying; they keep the allocation alive. Those of lazy bytes are lazy and,
  /// while the whole is not in memory, are read on their own. Throws IoError OutOfBounds; std::bad_alloc if lazy.
  [[nodiscard]] Bytes slice(std::size_t offset, std::size_t size) const;
  /// The bytes before `offset`, and those from it on, as slice gives them; these bytes are empty then. Throws as slice;
  /// then nothing has changed.
  [[nodiscard]] std::pair<Bytes, Bytes> split(std::size_t offset) &&;

  // Growth
  // ---------------------------------------------------------------------------------------------------------------

  /// Makes capacity() at least `size`. Throws as the class says; then nothing has changed.
  void reserve(std::size_t size);
  /// Adds a copy of `more`, which may be part of these bytes, in amortised constant time a byte. Memory that must be
  /// replaced for that becomes Native. Throws as the class says; then nothing has changed.
  void append(std::span<const std::byte> more);

  void swap(Bytes& other) noexcept {
    std::swap(allocation_, other.allocation_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }
  /// Same size and content. Throws as the class says if the sizes are equal.
  friend bool operator==(const Bytes& a, const Bytes& b) {
    return a.size_ == b.size_ && (a.size_ == 0 || std::memcmp(a.data(), b.data(), a.size_) == 0);
  }

 private:
  friend class BytesReader;

  Bytes(HostAllocation* allocation, std::byte* data, std::size_t size) noexcept
      : allocation_(allocation), data_(data), size_(size) {}

  /// Room for `capacity` bytes, but none of them yet. Throws IoError OutOfHostMemory.
  [[nodiscard]] static Bytes with_capacity(std::size_t capacity);

  [[nodiscard]] std::byte* resident() const noexcept {
    return data_ != nullptr || allocation_ == nullptr ? data_ : allocation_->data();
  }
  /// Precondition: not resident.
  [[nodiscard]] LazyAllocation& lazy() const noexcept;
  [[nodiscard]] std::byte* load() const;
  /// The data if it may be written to where it is, else null.
  [[nodiscard]] std::byte* writable() const noexcept {
    return allocation_ != nullptr && allocation_->is_writable() && allocation_->has_one_owner() ? resident() : nullptr;
  }
  [[nodiscard]] std::byte* exclusive(AccessPolicy policy);
  void require_resident() const;
  void require_range(std::size_t offset, std::size_t size) const;
  void require_whole_elements(std::size_t size) const;
  static void require_aligned(const std::byte* data, std::size_t multiple);

  HostAllocation* allocation_ = nullptr;  // one of its references is ours
  std::byte* data_ = nullptr;             // null: at the start of the allocation, which may be lazy
  std::size_t size_ = 0;
};

/// Copies Bytes out from front to back, part after part. Lazy ones come straight from their file, which stays open
/// meanwhile, into the memory given: nothing else is allocated, and all parts are from one file even if another takes
/// its name. One thread; the Bytes must outlive the reader and must not be written to meanwhile.
class BytesReader {
 public:
  /// Opens the file of lazy bytes. Throws IoError FileUnreadable.
  explicit BytesReader(const Bytes& bytes);
  explicit BytesReader(const Bytes&&) = delete;

  /// How many bytes are left.
  [[nodiscard]] std::size_t remaining() const noexcept { return size_ - position_; }
  /// Fills `destination` with the next destination.size() bytes. Blocks while a file is read. Throws IoError
  /// OutOfBounds if there are not so many left, FileUnreadable, FileTooShort; the position then stays, and the content
  /// of `destination` is not defined.
  void read(std::span<std::byte> destination);
  /// Passes over `count` bytes. Throws IoError OutOfBounds if there are not so many left.
  void skip(std::size_t count);

 private:
  void require_remaining(std::size_t count) const;

  const std::byte* memory_;             // null if the bytes are lazy, or none
  std::unique_ptr<ByteSource> source_;  // of lazy bytes
  std::size_t size_;
  std::size_t position_ = 0;
};

}  // namespace cox
