#pragma once

#include <coxswain/runtime/bytes/host_allocation.hpp>

#include <span>
#include <utility>
#include <vector>

namespace cox::detail {

/// The memory of a vector. Moving a vector does not move its elements, so the base class may take their address first.
template <class T>
class VectorAllocation final : public HostAllocation {
 public:
  explicit VectorAllocation(std::vector<T>&& elements) noexcept
      : HostAllocation(AllocationProperty::Native, std::as_writable_bytes(std::span<T>(elements))),
        elements_(std::move(elements)) {}

  /// Moves the vector out; this allocation must not be accessed afterwards.
  [[nodiscard]] std::vector<T> take() noexcept { return std::move(elements_); }

 private:
  std::vector<T> elements_;
};

}  // namespace cox::detail
