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

/// Which server a memory belongs to. `generation` is unique to each server the process ever built, so that a handle
/// from before a shutdown of its device is recognised.
struct MemoryOwner {
  DeviceId device;
  std::uint64_t generation = 0;

  friend bool operator==(const MemoryOwner&, const MemoryOwner&) = default;
  /// A generation that no other server of this process has. Any thread.
  [[nodiscard]] static std::uint64_t next_generation() noexcept;
};

/// The storage that a server put behind a memory. Given back when the last handle and binding that refers to it is
/// gone, on whichever thread that happens; the server knows what queued work may still touch it (L11).
class MemoryResource {
 public:
  MemoryResource() = default;
  MemoryResource(const MemoryResource&) = delete;
  MemoryResource& operator=(const MemoryResource&) = delete;
  virtual ~MemoryResource() = default;

  /// Nobody refers to it any more. Called once, on any thread; must not block.
  virtual void release() noexcept = 0;
  /// Why its contents are not to be used, as far as it is known now; nothing: they are good. Any thread.
  [[nodiscard]] virtual std::optional<MemoryFailure> failure() const { return std::nullopt; }
};

struct ReleaseMemoryResource {
  void operator()(MemoryResource* resource) const noexcept { resource->release(); }
};

/// What the device thread knows about a memory. Read and written there only, until the last reference dies.
struct MemoryState {
  std::unique_ptr<MemoryResource, ReleaseMemoryResource> resource;  ///< null until initialised
  std::exception_ptr failure;                                       ///< why the allocation failed, if it did (L12)
  /// One of these has been set, for good as long as there are handles: what other threads may look at.
  std::atomic<bool> published{false};
};

/// A memory that somebody else keeps: good as long as he does.
class MemoryView {
 public:
  MemoryView() noexcept = default;

  /// False for that of an empty reference.
  [[nodiscard]] explicit operator bool() const noexcept { return record_ != nullptr; }
  friend bool operator==(const MemoryView&, const MemoryView&) = default;

  // Precondition of all below: not empty.
  [[nodiscard]] const MemoryOwner& owner() const noexcept { return record_->owner; }
  /// Unique in the process; names the memory in messages.
  [[nodiscard]] std::uint64_t id() const noexcept { return record_->id; }
  /// Bytes of the allocation.
  [[nodiscard]] std::size_t size() const noexcept { return record_->size; }
  /// Device thread of the owner only.
  [[nodiscard]] MemoryState& state() const noexcept { return record_->state; }
  /// As Handle::failure(). Any thread that holds a handle.
  [[nodiscard]] std::optional<MemoryFailure> failure() const {
    const MemoryState& known = record_->state;
    if (!known.published.load(std::memory_order_acquire)) return std::nullopt;  // pairs with the release of the servers
    if (known.failure != nullptr) return MemoryFailure{known.failure, MemoryFailure::Contents::Unchanged};
    return known.resource->failure();
  }

  /// As a number, the lowest three bits of which are 0; and back. Of an empty one, too.
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

/// A counted reference to one allocation: minted by the client, before the device has any memory for it, and bound to
/// storage on the device thread. Copies may be made and dropped on any thread; the last one frees the memory. Closures
/// waiting in a queue hold references, so dropping a handle never takes memory from queued work.
class ManagedMemory : public MemoryView {
 public:
  ManagedMemory() noexcept = default;
  /// For `size` bytes. Throws std::bad_alloc only.
  [[nodiscard]] static ManagedMemory create(const MemoryOwner& owner, std::size_t size) {
    return adopt(MemoryView(new Record(owner, size)));
  }
  /// One more reference.
  explicit ManagedMemory(MemoryView memory) noexcept : MemoryView(memory) {
    if (record_ != nullptr) record_->references.fetch_add(1, std::memory_order_relaxed);
  }
  /// A reference that has been counted already; and the way back: the reference is empty afterwards.
  static ManagedMemory adopt(MemoryView counted) noexcept {
    ManagedMemory memory;
    static_cast<MemoryView&>(memory) = counted;
    return memory;
  }
  MemoryView release() && noexcept { return std::exchange(static_cast<MemoryView&>(*this), MemoryView()); }

  ManagedMemory(const ManagedMemory& other) noexcept : ManagedMemory(static_cast<const MemoryView&>(other)) {}
  ManagedMemory(ManagedMemory&& other) noexcept : MemoryView(std::move(other).release()) {}
  ManagedMemory& operator=(ManagedMemory other) noexcept {
    std::swap(record_, other.record_);
    return *this;
  }
  ~ManagedMemory() {
    // Release: what this thread did with the memory is visible to whoever frees it; acquire, in the one that frees.
    if (record_ != nullptr && record_->references.fetch_sub(1, std::memory_order_acq_rel) == 1) delete record_;
  }

  /// Nobody else refers to the memory. Precondition: not empty.
  [[nodiscard]] bool is_last() const noexcept {
    // Acquire pairs with the release in the destructor: what the others did with the memory has happened.
    return record_->references.load(std::memory_order_acquire) == 1;
  }
};

/// A reference that also counts as a user's handle. As long as there is only one, its user may change the memory in
/// place without anyone else noticing.
///
/// It gives out references to operations, which drop them on the device thread: see BiasedRefCount.
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
  /// A reference for an operation. Any number of threads at a time.
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
  /// No other handle refers to the memory. Queued work may: it is ordered by the stream.
  [[nodiscard]] bool can_mut() const noexcept {
    // Acquire pairs with the release in remove_handle: what the last other user did with its handle has happened.
    return memory_ && memory_.record_->handles.load(std::memory_order_acquire) == 1;
  }

 private:
  // memory_ is counted besides, so that this is never the last.
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
