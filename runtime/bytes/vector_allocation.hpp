#pragma once

#include <coxswain/runtime/bytes/host_allocation.hpp>

#include <span>
#include <utility>
#include <vector>

namespace cox::detail {

/// The memory of a vector. Moving a vector leaves its elements where they are, so the base may look at them first.
template <class T>
class VectorAllocation final : public HostAllocation {
 public:
  explicit VectorAllocation(std::vector<T>&& elements) noexcept
      : HostAllocation(AllocationProperty::Native, std::as_writable_bytes(std::span<T>(elements))),
        elements_(std::move(elements)) {}

  /// The vector; this allocation must not be looked at again.
  [[nodiscard]] std::vector<T> take() noexcept { return std::move(elements_); }

 private:
  std::vector<T> elements_;
};

}  // namespace cox::detail
