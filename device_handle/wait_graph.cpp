#include <coxswain/device_handle/wait_graph.hpp>

#include <algorithm>
#include <mutex>
#include <utility>

namespace cox {
namespace {

std::mutex& graph_mutex() {
  static auto& mutex = *new std::mutex;  // never destroyed: device threads may outlive static destructors
  return mutex;
}

}  // namespace

HeldNode::HeldNode(WaitNode& node) noexcept : node_(node), outer_(innermost_) { innermost_ = this; }

HeldNode::~HeldNode() { innermost_ = outer_; }

void HeldNode::forget() noexcept { innermost_ = nullptr; }

bool WaitNode::reaches(const WaitNode& target) const noexcept {
  return this == &target ||
         std::ranges::any_of(waits_for_, [&](const WaitNode* next) { return next->reaches(target); });  // no rings here
}

void WaitScope::announce(std::vector<WaitNode*> targets) {
  if (targets.empty()) return;
  const std::scoped_lock lock(graph_mutex());
  for (const HeldNode* held = HeldNode::innermost_; held != nullptr; held = held->outer_) {
    for (const WaitNode* target : targets) ring_ = ring_ || target->reaches(held->node_);
  }
  if (ring_) return;
  for (const HeldNode* held = HeldNode::innermost_; held != nullptr; held = held->outer_) {
    auto& edges = held->node_.waits_for_;
    edges.insert(edges.end(), targets.begin(), targets.end());
    waiting_.push_back(&held->node_);
  }
  announced_ = std::move(targets);
}

void WaitScope::answered() noexcept {
  if (announced_.empty()) return;  // nothing announced; else only the lock tells whether somebody was here first
  const std::scoped_lock lock(graph_mutex());
  for (WaitNode* const node : waiting_) {
    auto& edges = node->waits_for_;  // a thread's scopes nest, and an outer one is not answered before an inner one
    edges.resize(edges.size() - announced_.size());
  }
  waiting_.clear();
}

}  // namespace cox
