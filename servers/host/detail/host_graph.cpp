#include <coxswain/servers/host/detail/host_graph.hpp>

#include <utility>

namespace cox::detail {

void HostGraph::add(const BufferUses& uses, UniqueFunction<void()> step) {
  for (const BufferUse& use : uses) {
    const auto [found, is_new] = places_.try_emplace(use.buffer, uses_.size());
    if (is_new) {
      memory_.push_back(*use.memory);
      uses_.push_back({use.buffer, use.access, nullptr});
    } else if (use.access == Access::Write) {
      uses_[found->second].access = Access::Write;
    }
  }
  steps_.push_back(std::move(step));
}

}  // namespace cox::detail
