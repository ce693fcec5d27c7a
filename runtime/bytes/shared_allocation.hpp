#pragma once

#include <coxswain/runtime/bytes/host_allocation.hpp>

#include <cstddef>
#include <memory>
#include <span>
#include <utility>

namespace cox::detail {

/// Memory that is shared with other owners and therefore read-only. `keeper` keeps it alive.
class SharedAllocation final : public HostAllocation {
 public:
  SharedAllocation(std::shared_ptr<const void> keeper, std::span<const std::byte> memory,
                   AllocationProperty property) noexcept
      : HostAllocation(property, memory), keeper_(std::move(keeper)) {}

 private:
  std::shared_ptr<const void> keeper_;
};

}  // namespace cox::detail
