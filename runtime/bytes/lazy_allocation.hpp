#pragma once

#include <coxswain/runtime/bytes/byte_source.hpp>
#include <coxswain/runtime/bytes/host_allocation.hpp>

#include <cstddef>
#include <memory>
#include <mutex>

namespace cox {

/// Bytes in a file or on a device, which are read into memory at the first access. Any thread.
class LazyAllocation : public HostAllocation {
 public:
  /// Returns the content in memory. The first call reads it; concurrent calls wait for the first one and share its
  /// result. Blocks. Throws IoError OutOfHostMemory and what the source throws; the next call then tries again. Never
  /// null, unless the size is 0.
  std::byte* load();
  /// Opens the content for reads that bypass load. May block. Throws IoError.
  [[nodiscard]] virtual std::unique_ptr<ByteSource> open() const = 0;
  /// Returns a range of this allocation that is read separately. Throws std::bad_alloc only. Precondition: the range is
  /// within this allocation.
  [[nodiscard]] virtual std::unique_ptr<LazyAllocation> window(std::size_t offset, std::size_t size) const = 0;

 protected:
  LazyAllocation(AllocationProperty property, std::size_t size) noexcept
      : HostAllocation(property, nullptr, size, true) {}

 private:
  std::mutex mutex_;
  std::unique_ptr<HostAllocation> memory_;  // guarded by mutex_; never replaced once it is set
};

}  // namespace cox
