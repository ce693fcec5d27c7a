#pragma once

#include <coxswain/runtime/tensor/memory_layout_policy.hpp>

#include <cstddef>

namespace cox {

/// Lays out every tensor row-major without padding, whatever strategy is requested.
class ContiguousLayoutPolicy {
 public:
  explicit ContiguousLayoutPolicy(std::size_t alignment) noexcept : alignment_(alignment) {}

  [[nodiscard]] TensorExtent extent(const MemoryLayoutDescriptor& tensor) const;
  [[nodiscard]] std::size_t alignment() const noexcept { return alignment_; }

 private:
  std::size_t alignment_;
};

static_assert(MemoryLayoutPolicy<ContiguousLayoutPolicy>);

}  // namespace cox
