#pragma once

#include <coxswain/runtime/bytes/host_allocation.hpp>
#include <coxswain/runtime/bytes/plain_range.hpp>
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

/// What an access to Bytes is allowed to do.
enum class AccessPolicy : std::uint8_t {
  AllowCopy,  ///< Read lazy bytes into memory, and copy shared bytes before a write.
  ZeroCopy,   ///< Neither: an access that would need one of them throws IoError WouldCopy.
};

/// A host buffer: the source of an upload, or the result of a download. Move-only; a moved-from Bytes is empty.
///
/// Several Bytes may share one allocation (share, slice, split) without seeing each other's changes (copy-on-write). A
/// non-const access first copies the bytes of this object, and no others, if another Bytes shares the allocation or if
/// the memory is read-only. To read shared bytes without a copy, use a const reference (std::as_const).
///
/// Lazy bytes (from_file) are read into memory by the first access to their content, once for all Bytes that share
/// them. That access blocks, and throws IoError FileUnreadable, FileTooShort or OutOfHostMemory; the next access then
/// tries again. size, share, slice and split read nothing. copy_to, to_vector, copy and BytesReader read, but keep
/// nothing in memory.
///
/// May be moved between threads. Const calls on one Bytes may run concurrently, and so may any calls on different Bytes
/// that share an allocation. The last Bytes of an allocation releases the memory, on the thread that destroys it.
class Bytes {
 public:
  /// Releases adopted memory; must not throw.
  using Release = void (*)(void* context) noexcept;
  /// Memory that Bytes allocates itself starts at a multiple of this.
  static constexpr std::size_t alignment = detail::heap_alignment;

  Bytes() noexcept = default;
  Bytes(Bytes&& other) noexcept { swap(other); }
  Bytes& operator=(Bytes&& other) noexcept {
    Bytes(std::move(other)).swap(*this);
    return *this;
  }
  ~Bytes() {
    if (allocation_ != nullptr && allocation_->drop()) delete allocation_;
  }

  // Creation
  // ---------------------------------------------------------------------------------------------------------------

  /// `size` bytes with undefined content. Throws IoError OutOfHostMemory.
  [[nodiscard]] static Bytes uninitialized(std::size_t size);
  /// `size` zero bytes. Throws IoError OutOfHostMemory.
  [[nodiscard]] static Bytes zeroed(std::size_t size);
  /// A copy of `data`. Throws IoError OutOfHostMemory.
  [[nodiscard]] static Bytes copy_of(std::span<const std::byte> data);
  template <PlainRange Range>
  [[nodiscard]] static Bytes copy_of(const Range& data) {
    return copy_of(bytes_of(data));
  }
  /// Takes ownership of the vector without copying its elements; they keep their alignment. Throws std::bad_alloc.
  template <class T>
    requires PlainRange<std::vector<T>>
  [[nodiscard]] static Bytes from_vector(std::vector<T> data) {
    const std::span<std::byte> memory = std::as_writable_bytes(std::span<T>(data));  // moving `data` does not move it
    return from_allocation(
        std::make_unique<detail::OwnedAllocation<std::vector<T>>>(AllocationProperty::Native, memory, std::move(data)));
  }
  /// `size` bytes of a file, starting at `offset`. The file is neither opened nor read yet. If it changes before the
  /// bytes are read, the new content is read; it is up to the caller to avoid that. Throws IoError OutOfBounds if no
  /// file can be that large.
  [[nodiscard]] static Bytes from_file(std::string path, std::uint64_t offset, std::size_t size);
  /// Memory of a server or of another owner; the destructor of `allocation` releases it. Null makes empty bytes.
  [[nodiscard]] static Bytes from_allocation(std::unique_ptr<HostAllocation> allocation) noexcept;
  /// Memory that is shared with other owners; it is never written to. `keeper`, if not null, is released with the last
  /// Bytes. Throws std::bad_alloc.
  [[nodiscard]] static Bytes from_shared(std::shared_ptr<const void> keeper, std::span<const std::byte> data,
                                         AllocationProperty property = AllocationProperty::Other);
  /// Takes ownership of `size` bytes at `data`; calls `release(context)` once, when they are no longer used. Throws
  /// std::bad_alloc, after calling `release`.
  [[nodiscard]] static Bytes adopt(std::byte* data, std::size_t size, void* context, Release release);

  // Properties; none of these calls reads or allocates
  // -------------------------------------------------------------------------------

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  /// Where the memory is from. Bytes that were copied for a write are Native, whatever they were before.
  [[nodiscard]] AllocationProperty property() const noexcept {
    return allocation_ == nullptr ? AllocationProperty::Native : allocation_->property();
  }
  /// Whether the content is in memory: const accesses then neither block nor throw.
  [[nodiscard]] bool is_resident() const noexcept { return size_ == 0 || resident() != nullptr; }
  /// The largest size to which append() grows in place. Equals size() if the memory cannot be written in place, so that
  /// the next write copies it.
  [[nodiscard]] std::size_t capacity() const noexcept;

  // Content
  // --------------------------------------------------------------------------------------------------------------

  /// Null if empty, unless the owner of the memory provides an address. Throws as described above for the class.
  [[nodiscard]] const std::byte* data() const {
    return resident() != nullptr || size_ == 0 ? resident() : lazy().load();
  }
  /// For writing; copies the bytes if necessary. Throws as described for the class.
  [[nodiscard]] std::byte* data() { return exclusive(AccessPolicy::AllowCopy); }
  /// Also throws IoError WouldCopy if `policy` is ZeroCopy.
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
  /// Fills `destination` with destination.size() bytes, starting at `offset`. Lazy bytes are read directly from their
  /// source and stay lazy. Throws IoError OutOfBounds, and as described for the class.
  void copy_to(std::span<std::byte> destination, std::size_t offset = 0) const;
  /// A copy of the bytes in newly allocated memory. Throws as described for the class.
  [[nodiscard]] Bytes copy() const;
  /// A copy of the bytes as elements of T, whatever their alignment. Throws IoError ElementSize, and as described for
  /// the class.
  template <class T>
    requires std::is_trivially_copyable_v<T>
  [[nodiscard]] std::vector<T> to_vector() const {
    require_whole_elements(sizeof(T));
    std::vector<T> elements(size_ / sizeof(T));
    copy_to(std::as_writable_bytes(std::span<T>(elements)));
    return elements;
  }
  /// Returns the vector of T that was passed to from_vector, without copying; these bytes are then empty. Returns
  /// nullopt and changes nothing if the memory is no such vector or is shared, or if these bytes are only a part of it.
  template <class T>
    requires std::is_trivially_copyable_v<T>
  [[nodiscard]] std::optional<std::vector<T>> try_into_vector() && noexcept {
    auto* const owner = dynamic_cast<detail::OwnedAllocation<std::vector<T>>*>(allocation_);
    if (owner == nullptr || size_ != owner->size() || !owner->has_one_owner()) return std::nullopt;
    std::optional<std::vector<T>> elements(owner->take());
    Bytes().swap(*this);
    return elements;
  }

  // Parts
  // ----------------------------------------------------------------------------------------------------------------

  /// Another Bytes for the same memory, without copying.
  [[nodiscard]] Bytes share() const noexcept {
    if (allocation_ != nullptr) allocation_->retain();
    return {allocation_, resident(), size_};
  }
  /// `size` bytes starting at `offset`, without copying; they keep the allocation alive. A slice of lazy bytes that are
  /// not in memory is lazy as well, and is read separately. Throws IoError OutOfBounds; std::bad_alloc if lazy.
  [[nodiscard]] Bytes slice(std::size_t offset, std::size_t size) const;
  /// The slices before `offset` and from `offset` on; these bytes are then empty. Throws what slice throws; then
  /// nothing has changed.
  [[nodiscard]] std::pair<Bytes, Bytes> split(std::size_t offset) &&;

  // Growth
  // ---------------------------------------------------------------------------------------------------------------

  /// Makes capacity() at least `size`. Throws as described for the class; then nothing has changed.
  void reserve(std::size_t size);
  /// Appends a copy of `more`, which may be part of these bytes, in amortised constant time per byte. If the memory
  /// must be replaced, the new memory is Native. Throws as described for the class; then nothing has changed.
  void append(std::span<const std::byte> more);

  void swap(Bytes& other) noexcept {
    std::swap(allocation_, other.allocation_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }
  /// Same size and content. Throws as described for the class, only if the sizes are equal.
  friend bool operator==(const Bytes& a, const Bytes& b) {
    return a.size_ == b.size_ && (a.size_ == 0 || std::memcmp(a.data(), b.data(), a.size_) == 0);
  }

 private:
  friend class BytesReader;

  Bytes(HostAllocation* allocation, std::byte* data, std::size_t size) noexcept
      : allocation_(allocation), data_(data), size_(size) {}

  /// Empty bytes with room for `capacity` bytes. Throws IoError OutOfHostMemory.
  [[nodiscard]] static Bytes with_capacity(std::size_t capacity);

  [[nodiscard]] std::byte* resident() const noexcept {
    return data_ != nullptr || allocation_ == nullptr ? data_ : allocation_->data();
  }
  /// Precondition: not resident.
  [[nodiscard]] LazyAllocation& lazy() const noexcept { return static_cast<LazyAllocation&>(*allocation_); }
  /// The data if it can be written to in place, else null.
  [[nodiscard]] std::byte* writable() const noexcept {
    return allocation_ != nullptr && allocation_->is_writable() && allocation_->has_one_owner() ? resident() : nullptr;
  }
  [[nodiscard]] std::byte* exclusive(AccessPolicy policy);
  void require_resident() const;
  void require_range(std::size_t offset, std::size_t size) const;
  void require_whole_elements(std::size_t size) const;
  static void require_aligned(const std::byte* data, std::size_t multiple);

  HostAllocation* allocation_ = nullptr;  // this object holds one of its references
  std::byte* data_ = nullptr;             // null: at the start of the allocation, which may be lazy
  std::size_t size_ = 0;
};

/// Reads Bytes from front to back, in parts. Lazy bytes are read directly from their file into the memory of the
/// caller, and no other memory is allocated. The file stays open during the lifetime of the reader: all parts are from
/// the same file, even if another file takes its name. One thread; the Bytes must outlive the reader and must not be
/// written to during its lifetime.
class BytesReader {
 public:
  /// Opens the file of lazy bytes. Throws IoError FileUnreadable.
  explicit BytesReader(const Bytes& bytes);
  explicit BytesReader(const Bytes&&) = delete;

  /// The number of bytes that are left.
  [[nodiscard]] std::size_t remaining() const noexcept { return size_ - position_; }
  /// Fills `destination` with the next destination.size() bytes. Blocks while a file is read. Throws IoError
  /// OutOfBounds if fewer bytes are left, FileUnreadable, FileTooShort; the position is then unchanged, and the content
  /// of `destination` is undefined.
  void read(std::span<std::byte> destination);
  /// Skips `count` bytes. Throws IoError OutOfBounds if fewer bytes are left.
  void skip(std::size_t count);

 private:
  void require_remaining(std::size_t count) const;

  const std::byte* memory_;             // null if the bytes are lazy or empty
  std::unique_ptr<ByteSource> source_;  // null unless the bytes are lazy
  std::size_t size_;
  std::size_t position_ = 0;
};

}  // namespace cox
