#pragma once

#include <coxswain/runtime/handle/memory_usage.hpp>
#include <coxswain/runtime/memory/device_buffer.hpp>
#include <coxswain/runtime/memory/memory_pool.hpp>
#include <coxswain/runtime/memory/memory_pool_layout.hpp>
#include <coxswain/runtime/memory/memory_report.hpp>
#include <coxswain/runtime/memory/separate_memory.hpp>
#include <coxswain/runtime/memory/usage_gauge.hpp>

#include <algorithm>
#include <cstddef>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <utility>

namespace cox {

/// Storage that is notified which bytes must not be accessed, so that it can detect invalid accesses.
template <class S>
concept GuardedStorage = requires(S& storage, MemoryAddress address, std::size_t bytes) {
  { storage.guard(address, bytes) } noexcept;
  { storage.unguard(address, bytes) } noexcept;
};

struct MemoryRequest {
  std::size_t bytes = 0;
  StreamSlot stream = no_stream;  ///< stream of the first use
  DeviceBuffer::Home home = DeviceBuffer::Home::Automatic;
  Growth growth = Growth::Allowed;
  MemoryLabel label;
};

/// The memory of one device and kind, from which its server allocates. It has a pool for short-lived memory and one for
/// long-lived memory (persistent windows), so that long-lived blocks do not fragment the first. One limit applies to
/// both pools, and to separate memory (kept memory). Buffers that were dropped on other threads return through a list.
/// Device thread only.
template <MemoryStorage Storage, StreamClock Clock>
class DeviceMemory {
 public:
  using Buffer = std::unique_ptr<DeviceBuffer, ReleaseMemoryResource>;
  using Home = DeviceBuffer::Home;

  /// `storage`: constructor arguments of Storage.
  template <class... A>
  DeviceMemory(const Clock& clock, const MemoryPoolOptions& options, const A&... storage)
      : clock_(clock), options_(options), limit_(options.capacity), automatic_(storage...), persistent_(storage...) {
    build(options_);
  }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  /// Returns all memory to the device, and borrowed memory to its owners, including memory that handles still refer to.
  /// Precondition: no work uses the memory.
  ~DeviceMemory() {
    for (const auto& memory : borrowed_) memory->release();
    delete_all(std::exchange(returning_, nullptr));
    delete_all(std::exchange(dropped_, nullptr));
    delete_all(returned_->close());
    delete_all(retired_);
    delete_all(spare_);
  }

  /// Returns null if there is no room, even after all free memory has been reclaimed (which Growth::Forbidden
  /// excludes); report() shows why. For 0 bytes, returns a buffer without an address. Throws std::bad_alloc.
  [[nodiscard]] Buffer allocate(const MemoryRequest& request) {
    collect_returned();
    Buffer buffer(spare_buffer());
    if (request.bytes == 0) return buffer;
    auto found = try_allocate(request);
    if (!found && request.growth == Growth::Allowed) {
      collect();
      found = try_allocate(request);
    }
    if (!found) return nullptr;
    buffer->bytes = request.bytes;
    buffer->home = request.home;
    buffer->allocation = *found;
    buffer->uses = AccessTracker(found->last_use);
    unguard(*buffer);
    publish();
    return buffer;
  }

  /// A buffer of `bytes` bytes at an address that the caller of ComputeClient::borrow owns. It is released through
  /// end_borrowed() after it has been dropped, or at the end of this object. Throws std::bad_alloc; then `memory` is
  /// not kept.
  [[nodiscard]] Buffer borrow(MemoryAddress address, std::size_t bytes, std::shared_ptr<BorrowedMemory> memory) {
    Buffer buffer(spare_buffer());
    if (borrowed_.size() >= sweep_at_) forget_released();
    borrowed_.push_back(memory);
    buffer->bytes = bytes;
    buffer->home = Home::Borrowed;
    buffer->allocation = {.block = 0, .generation = 0, .address = address, .size = bytes, .last_use = {}};
    buffer->borrowed = std::move(memory);
    return buffer;
  }
  /// Counts memory of the device that does not come from the pools (`reserved` bytes, of which `bytes` are used) in
  /// reports and against the limit, until the result is destroyed, on any thread. First returns free memory to the
  /// device, as cleanup(). Returns null if the limit does not allow it. Throws std::bad_alloc.
  [[nodiscard]] std::shared_ptr<void> count_separate(std::size_t bytes, std::size_t reserved) {
    cleanup();
    const std::size_t taken = usage_now().bytes_reserved;
    if (taken > limit_ || reserved > limit_ - taken) return nullptr;
    std::shared_ptr<void> counted = separate_.count(bytes, reserved);
    publish();
    return counted;
  }
  /// Memory has been borrowed, and may have been dropped.
  [[nodiscard]] bool has_borrowed() const noexcept { return !borrowed_.empty(); }
  /// Calls `end(uses, memory)` for the borrowed memory that has been dropped. `uses`: the positions that may still use
  /// it; `end` must have memory->release() called on this thread when they are complete. Throws what `end` throws, and
  /// std::bad_alloc; the next call goes on with that memory.
  template <class End>
  void end_borrowed(End&& end) {
    collect_returned();
    while (dropped_ != nullptr) {
      DeviceBuffer& buffer = *std::exchange(dropped_, dropped_->next_returned);  // first: `end` may come here again
      try {
        end(buffer.uses.pending(clock_), buffer.borrowed);
      } catch (...) {
        buffer.next_returned = std::exchange(dropped_, &buffer);
        throw;
      }
      retire(buffer);
    }
  }

  /// Frees the buffers that have been dropped so far; allocate, cleanup, usage, report and install call it first.
  /// Throws std::bad_alloc; the remaining buffers are freed by the next call.
  void collect_returned() {
    if (DeviceBuffer* newest = returned_->take_all()) {
      DeviceBuffer** end = &returning_;
      while (*end != nullptr) end = &(*end)->next_returned;
      *end = newest;
    }
    if (retired_ != nullptr && !work_refers_to_buffers())
      for (DeviceBuffer* next = std::exchange(retired_, nullptr); next != nullptr;)
        keep_spare(std::exchange(next, next->next_returned));
    if (returning_ == nullptr) return;
    while (returning_ != nullptr) {
      if (returning_->home == Home::Borrowed) [[unlikely]] {
        DeviceBuffer* const buffer = std::exchange(returning_, returning_->next_returned);
        buffer->next_returned = std::exchange(dropped_, buffer);
        continue;
      }
      if (returning_->bytes != 0) free(*returning_);
      retire(*std::exchange(returning_, returning_->next_returned));
    }
    publish();
  }

  /// Whether the buffer's memory has not been freed.
  [[nodiscard]] bool is_live(const DeviceBuffer& buffer) const noexcept {
    if (buffer.home == Home::Borrowed) return !buffer.borrowed->is_released();
    return buffer.bytes == 0 || pool_of(buffer.home).is_live(buffer.allocation);
  }

  /// Returns free memory that no work uses any more to the device. Throws std::bad_alloc.
  void cleanup() {
    collect_returned();
    collect();
  }
  [[nodiscard]] MemoryUsage usage() {
    collect_returned();
    return usage_now();
  }
  /// The usage after the last call that changed it. Any thread may read the gauge.
  [[nodiscard]] const std::shared_ptr<const UsageGauge>& gauge() const noexcept { return gauge_; }
  /// Visits every allocation.
  [[nodiscard]] MemoryReport report() {
    collect_returned();
    MemoryReport report = automatic_pool_->report();
    report += persistent_pool_->report();
    report.usage += separate_.usage();
    if (separate_.reserved() != 0) report.by_label["kept memory"] += separate_.reserved();
    report.capacity = limit_;
    return report;
  }
  /// Limit of the bytes that both pools and separate memory together may take from the device.
  [[nodiscard]] std::size_t capacity() const noexcept { return limit_; }

  /// Rebuilds the pools with `layout`. Returns false, and changes nothing, while there are allocations or while work
  /// still uses memory. Throws std::bad_alloc; then nothing has changed either.
  [[nodiscard]] bool install(const MemoryPoolLayout& layout) {
    if (usage().number_allocs != 0) return false;
    collect();
    if (usage_now().bytes_reserved != 0) return false;  // memory that work still uses was not reclaimed (L11)
    MemoryPoolOptions options = options_;
    options.slack = layout.slack;
    options.capacity = layout.capacity == 0 ? options_.capacity : std::min(layout.capacity, options_.capacity);
    build(options);
    options_.slack = options.slack;
    limit_ = options.capacity;
    return true;
  }

 private:
  using Pool = MemoryPool<Storage, Clock>;
  static constexpr std::size_t max_spare = 4096;

  // Throws std::bad_alloc; the pools are then unchanged.
  void build(const MemoryPoolOptions& options) {
    auto automatic = std::make_unique<Pool>(automatic_, clock_, options);
    auto persistent = std::make_unique<Pool>(persistent_, clock_, options);
    automatic_pool_ = std::move(automatic);
    persistent_pool_ = std::move(persistent);
  }

  [[nodiscard]] Storage& storage_of(Home home) noexcept { return home == Home::Automatic ? automatic_ : persistent_; }
  [[nodiscard]] Pool& pool_of(Home home) noexcept {
    return home == Home::Automatic ? *automatic_pool_ : *persistent_pool_;
  }
  [[nodiscard]] const Pool& pool_of(Home home) const noexcept {
    return home == Home::Automatic ? *automatic_pool_ : *persistent_pool_;
  }

  [[nodiscard]] std::optional<MemoryAllocation> try_allocate(const MemoryRequest& request) {
    const Home other = request.home == Home::Automatic ? Home::Persistent : Home::Automatic;
    Pool& pool = pool_of(request.home);
    pool.set_capacity(limit_ - std::min(limit_, pool_of(other).reserved() + separate_.reserved()));
    return pool.allocate(request.bytes, request.stream, request.label, request.growth);
  }

  void collect() noexcept {
    automatic_pool_->cleanup();
    persistent_pool_->cleanup();
    publish();
  }

  [[nodiscard]] MemoryUsage usage_now() const noexcept {
    return automatic_pool_->usage() + persistent_pool_->usage() + separate_.usage();
  }
  void publish() const noexcept { published_->publish(usage_now()); }

  void free(DeviceBuffer& buffer) {
    const StreamPositions uses = buffer.uses.pending(clock_);
    pool_of(buffer.home).free(buffer.allocation, {uses.data(), uses.size()});
    if constexpr (GuardedStorage<Storage>) {
      if (uses.empty()) storage_of(buffer.home).guard(buffer.allocation.address, buffer.allocation.size);
    }
  }

  // Allows accesses to the requested bytes. The padding stays guarded, unless queued work may still use it.
  void unguard(const DeviceBuffer& buffer) {
    if constexpr (GuardedStorage<Storage>) {
      const MemoryAllocation& memory = buffer.allocation;
      const bool idle = buffer.uses.pending(clock_).empty();
      if (idle) storage_of(buffer.home).guard(memory.address, memory.size);
      storage_of(buffer.home).unguard(memory.address, idle ? buffer.bytes : memory.size);
    }
  }

  [[nodiscard]] DeviceBuffer* spare_buffer() {
    if (spare_ == nullptr) return new DeviceBuffer(returned_);
    --spares_;
    return std::exchange(spare_, spare_->next_returned);
  }

  void forget_released() noexcept {
    std::erase_if(borrowed_, [](const auto& each) { return each->is_released(); });
    sweep_at_ = std::max<std::size_t>(64, 2 * borrowed_.size());  // so that sweeping costs O(1) a call
  }

  // The buffer object may be reused once no queued work refers to it.
  void retire(DeviceBuffer& buffer) noexcept {
    if (!work_refers_to_buffers()) return keep_spare(&buffer);
    buffer.next_returned = std::exchange(retired_, &buffer);
    buffer.bytes = 0;
  }

  void keep_spare(DeviceBuffer* buffer) noexcept {
    if (spares_ == max_spare || !buffer->is_reusable()) return buffer->drop();
    buffer->uses = AccessTracker();
    buffer->poison.clear();
    buffer->allocation = {};
    buffer->borrowed.reset();
    buffer->home = Home::Automatic;
    buffer->bytes = 0;
    buffer->depends_on = 0;
    buffer->next_returned = std::exchange(spare_, buffer);
    ++spares_;
  }

  // Whether queued work may refer to buffer objects without holding references to them.
  [[nodiscard]] bool work_refers_to_buffers() const noexcept {
    if constexpr (requires { clock_.refers_to_buffers(); }) return clock_.refers_to_buffers();
    return false;
  }

  static void delete_all(DeviceBuffer* first) noexcept {
    while (first != nullptr) std::exchange(first, first->next_returned)->drop();
  }

  const Clock& clock_;
  MemoryPoolOptions options_;
  std::size_t limit_;
  Storage automatic_;
  Storage persistent_;
  std::unique_ptr<Pool> automatic_pool_;  // neither pool is null
  std::unique_ptr<Pool> persistent_pool_;
  SeparateMemory separate_;
  const std::shared_ptr<ReturnedBuffers> returned_ = std::make_shared<ReturnedBuffers>();
  const std::shared_ptr<UsageGauge> published_ = std::make_shared<UsageGauge>();
  const std::shared_ptr<const UsageGauge> gauge_ = published_;
  DeviceBuffer* returning_ = nullptr;                    // returned by other threads, not freed yet
  DeviceBuffer* dropped_ = nullptr;                      // borrowed and dropped, not passed to end_borrowed() yet
  std::list<std::shared_ptr<BorrowedMemory>> borrowed_;  // all that have not been released, and some that have
  std::size_t sweep_at_ = 64;                            // size of borrowed_ at which the released ones are removed
  DeviceBuffer* retired_ = nullptr;                      // freed, but queued work may refer to them
  DeviceBuffer* spare_ = nullptr;
  std::size_t spares_ = 0;
};

}  // namespace cox
