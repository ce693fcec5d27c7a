#pragma once

#include <coxswain/runtime/bytes/host_allocation.hpp>

#include <cstddef>
#include <span>

namespace cox::detail {

/// Memory of the caller; the destructor calls a function that releases it.
class AdoptedAllocation final : public HostAllocation {
 public:
  using Release = void (*)(void* context) noexcept;

  AdoptedAllocation(std::span<std::byte> memory, void* context, Release release) noexcept
      : HostAllocation(AllocationProperty::Native, memory), context_(context), release_(release) {}
  ~AdoptedAllocation() override {
    if (release_ != nullptr) release_(context_);
  }

 private:
  void* context_;
  Release release_;
};

}  // namespace cox::detail
