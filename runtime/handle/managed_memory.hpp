#pragma once

#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/runtime/handle/biased_ref_count.hpp>
#include <coxswain/runtime/handle/memory_failure.hpp>

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <utility>

namespace cox {

/// The server that an allocation belongs to. `generation` is unique among all servers that the process has created, so
/// a handle from before a shutdown of its device is detected.
struct MemoryOwner {
  DeviceId device;
  std::uint64_t generation = 0;

  friend bool operator==(const MemoryOwner&, const MemoryOwner&) = default;
  /// A generation that no other server of this process has. Any thread.
  [[nodiscard]] static std::uint64_t next_generation() noexcept;
};

/// The storage of an allocation, provided by its server. It is released when the last handle or binding that refers to
/// it is destroyed, on the thread that destroys it. The server tracks which queued work may still access it (L11).
class MemoryResource {
 public:
  MemoryResource() = default;
  MemoryResource(const MemoryResource&) = delete;
  MemoryResource& operator=(const MemoryResource&) = delete;
  virtual ~MemoryResource() = default;

  /// Called once, when the last reference is dropped. Any thread; must not block.
  virtual void release() noexcept = 0;
  /// Why the contents must not be used (L14), as far as it is known now; std::nullopt if they are good. Any thread.
  [[nodiscard]] virtual std::optional<MemoryFailure> failure() const { return std::nullopt; }
};

struct ReleaseMemoryResource {
  void operator()(MemoryResource* resource) const noexcept { resource->release(); }
};

/// The state of an allocation. Read and written on the device thread only, with two exceptions: other threads may read
/// it once `published` is set, and the thread that drops the last reference destroys it.
struct MemoryState {
  std::unique_ptr<MemoryResource, ReleaseMemoryResource> resource;  ///< null until initialised
  std::exception_ptr failure;                                       ///< why the allocation failed, if it did (L12)
  /// Set when `resource` or `failure` has been set. While there are handles, these do not change afterwards, so that
  /// other threads may read them.
  std::atomic<bool> published{false};
};

/// A non-owning reference to an allocation. Valid while a ManagedMemory keeps the allocation alive.
class MemoryView {
 public:
  MemoryView() noexcept = default;

  /// False for a view of an empty reference.
  [[nodiscard]] explicit operator bool() const noexcept { return record_ != nullptr; }
  friend bool operator==(const MemoryView&, const MemoryView&) = default;

  // Precondition of the functions below, except bits(): not empty.
  [[nodiscard]] const MemoryOwner& owner() const noexcept { return record_->owner; }
  /// Unique in the process; identifies the allocation in messages.
  [[nodiscard]] std::uint64_t id() const noexcept { return record_->id; }
  /// Bytes of the allocation.
  [[nodiscard]] std::size_t size() const noexcept { return record_->size; }
  /// Device thread of the owner only.
  [[nodiscard]] MemoryState& state() const noexcept { return record_->state; }
  /// See Handle::failure(). Any thread that holds a handle.
  [[nodiscard]] std::optional<MemoryFailure> failure() const {
    const MemoryState& known = record_->state;
    if (!known.published.load(std::memory_order_acquire)) return std::nullopt;  // pairs with the release of the servers
    if (known.failure != nullptr) return MemoryFailure{known.failure, MemoryFailure::Contents::Unchanged};
    return known.resource->failure();
  }

  /// The view as a number whose lowest three bits are 0; from_bits() converts it back. Both work for an empty view,
  /// too.
  [[nodiscard]] std::uint64_t bits() const noexcept { return std::bit_cast<std::uint64_t>(record_); }
  [[nodiscard]] static MemoryView from_bits(std::uint64_t bits) noexcept {
    return MemoryView(std::bit_cast<Record*>(bits));
  }

 private:
  friend class ManagedMemory;
  friend class ManagedMemoryHandle;
  struct alignas(8) Record {
    Record(const MemoryOwner& memory_owner, std::size_t bytes) noexcept;
    std::atomic<std::uint32_t> references{1};
    std::atomic<std::uint32_t> handles{0};  // how many of the references are handles
    MemoryOwner owner;
    std::uint64_t id;
    std::size_t size;
    MemoryState state;
  };
  explicit MemoryView(Record* record) noexcept : record_(record) {}

  Record* record_ = nullptr;
};

/// A counted reference to one allocation. The client creates it before the device has memory for it; the device thread
/// binds it to storage. Copies may be made and destroyed on any thread; when the last one is gone, the device thread
/// frees the memory, before its next allocation at the latest. Closures in a queue hold references, so destroying a
/// handle never takes memory from queued work.
class ManagedMemory : public MemoryView {
 public:
  ManagedMemory() noexcept = default;
  /// Creates a reference to an allocation of `size` bytes that has no storage yet. Throws std::bad_alloc only.
  [[nodiscard]] static ManagedMemory create(const MemoryOwner& owner, std::size_t size) {
    return adopt(MemoryView(new Record(owner, size)));
  }
  /// Adds a reference.
  explicit ManagedMemory(MemoryView memory) noexcept : MemoryView(memory) {
    if (record_ != nullptr) record_->references.fetch_add(1, std::memory_order_relaxed);
  }
  /// Takes over a reference that has been counted already.
  static ManagedMemory adopt(MemoryView counted) noexcept {
    ManagedMemory memory;
    static_cast<MemoryView&>(memory) = counted;
    return memory;
  }
  /// The inverse of adopt(): the reference stays counted, and this object is empty afterwards.
  MemoryView release() && noexcept { return std::exchange(static_cast<MemoryView&>(*this), MemoryView()); }

  ManagedMemory(const ManagedMemory& other) noexcept : ManagedMemory(static_cast<const MemoryView&>(other)) {}
  ManagedMemory(ManagedMemory&& other) noexcept : MemoryView(std::move(other).release()) {}
  ManagedMemory& operator=(ManagedMemory other) noexcept {
    std::swap(record_, other.record_);
    return *this;
  }
  ~ManagedMemory() {
    // Release: the accesses of this thread to the memory happen before it is freed. Acquire, for the thread that frees
    // it: pairs with this release and the one in release_reserve on other threads.
    if (record_ != nullptr && record_->references.fetch_sub(1, std::memory_order_acq_rel) == 1) delete record_;
  }

  /// Whether this is the only reference to the memory. Precondition: not empty.
  [[nodiscard]] bool is_last() const noexcept {
    // Acquire pairs with the releases in the destructor and in release_reserve: the accesses of the other references
    // happen before this.
    return record_->references.load(std::memory_order_acquire) == 1;
  }
};

/// A reference that is also counted as a user's handle. If there is only one handle, its user may modify the memory in
/// place, since no other user can observe it.
///
/// Handles provide references to operations, which drop them on the device thread; see BiasedRefCount.
class ManagedMemoryHandle {
 public:
  ManagedMemoryHandle() noexcept = default;
  explicit ManagedMemoryHandle(ManagedMemory memory) noexcept : memory_(std::move(memory)) { add_handle(); }
  ManagedMemoryHandle(const ManagedMemoryHandle& other) noexcept : memory_(other.memory_) { add_handle(); }
  ManagedMemoryHandle(ManagedMemoryHandle&& other) noexcept
      : memory_(std::move(other.memory_)), reserve_(std::move(other.reserve_)) {}
  ManagedMemoryHandle& operator=(ManagedMemoryHandle other) noexcept {
    std::swap(memory_, other.memory_);
    reserve_.swap(other.reserve_);
    return *this;
  }
  ~ManagedMemoryHandle() {
    release_reserve();
    remove_handle();
  }

  [[nodiscard]] const ManagedMemory& memory() const noexcept { return memory_; }
  /// Creates a reference for an operation. Any number of threads may call it concurrently.
  [[nodiscard]] ManagedMemory reference() const noexcept {
    if (!memory_) return {};
    reserve_.add_reference(memory_.record_->references);
    return ManagedMemory::adopt(memory_);
  }
  /// Turns this handle into a plain reference; the handle is empty afterwards.
  [[nodiscard]] ManagedMemory into_memory() && noexcept {
    release_reserve();
    remove_handle();
    return std::move(memory_);
  }
  /// Whether no other handle refers to the memory. Queued work may still refer to it; the stream orders that work.
  [[nodiscard]] bool can_mut() const noexcept {
    // Acquire pairs with the release in remove_handle: the accesses of the other users through their handles happen
    // before this.
    return memory_ && memory_.record_->handles.load(std::memory_order_acquire) == 1;
  }

 private:
  // memory_ holds a reference of its own, so this never drops the last one.
  void release_reserve() noexcept {
    const std::uint32_t left = reserve_.release_all();
    // Release pairs with the acquire in ManagedMemory::is_last.
    if (left != 0) memory_.record_->references.fetch_sub(left, std::memory_order_release);
  }
  void add_handle() noexcept {
    if (memory_) memory_.record_->handles.fetch_add(1, std::memory_order_relaxed);
  }
  void remove_handle() noexcept {
    if (memory_) memory_.record_->handles.fetch_sub(1, std::memory_order_release);
  }

  ManagedMemory memory_;
  mutable detail::BiasedRefCount reserve_;
};

}  // namespace cox
