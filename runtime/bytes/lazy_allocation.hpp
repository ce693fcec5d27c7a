#pragma once

#include <coxswain/runtime/bytes/byte_source.hpp>
#include <coxswain/runtime/bytes/host_allocation.hpp>

#include <cstddef>
#include <memory>
#include <mutex>

namespace cox {

/// Bytes that are elsewhere, in a file or on a device, and come into memory when they are first looked at. Any thread.
class LazyAllocation : public HostAllocation {
 public:
  /// The content in memory: the first call reads it, the others wait for that one and share what it read. Blocks.
  /// Throws IoError OutOfHostMemory and what the source throws; the next call then tries again. Never null, unless the
  /// size is 0.
  std::byte* load();
  /// Opens the content for reads that bypass load. May block. Throws IoError.
  [[nodiscard]] virtual std::unique_ptr<ByteSource> open() const = 0;
  /// A range of this one that is read on its own. Throws std::bad_alloc only. Precondition: it is within this one.
  [[nodiscard]] virtual std::unique_ptr<LazyAllocation> window(std::size_t offset, std::size_t size) const = 0;

 protected:
  LazyAllocation(AllocationProperty property, std::size_t size) noexcept
      : HostAllocation(property, nullptr, size, true) {}

 private:
  std::mutex mutex_;
  std::unique_ptr<HostAllocation> memory_;  // guarded by mutex_; never replaced once it is set
};

}  // namespace cox
