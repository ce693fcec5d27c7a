#include <coxswain/runtime/bytes/lazy_allocation.hpp>

#include <coxswain/runtime/bytes/heap_allocation.hpp>

#include <utility>

namespace cox {

std::byte* LazyAllocation::load() {
  if (std::byte* const there = data(); there != nullptr || size() == 0) return there;
  const std::lock_guard lock(mutex_);
  if (memory_ == nullptr) {
    std::unique_ptr<HostAllocation> memory = detail::HeapAllocation::of_size(size());
    open()->read(0, {memory->data(), size()});
    memory_ = std::move(memory);
    publish(memory_->data());
  }
  return data();
}

}  // namespace cox
