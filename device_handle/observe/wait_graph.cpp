#include <coxswain/device_handle/observe/wait_graph.hpp>

#include <algorithm>
#include <memory>
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

void HeldNode::clear() noexcept { innermost_ = nullptr; }

bool WaitNode::reaches(const WaitNode& target) const noexcept {
  return this == &target || std::ranges::any_of(waits_for_, [&](const Edge& edge) {
           return edge.target->reaches(target);
         });  // there are no cycles here
}

// The edges from each node in `waiting` to each target.
struct WaitScope::Edges {
  std::vector<WaitNode*> waiting;
};

void WaitScope::announce(WaitNode& target) { announce(std::vector<WaitNode*>{&target}); }

void WaitScope::announce(std::vector<WaitNode*> targets) {
  if (targets.empty()) return;
  auto announced = std::make_unique<Edges>();
  const std::scoped_lock lock(graph_mutex());
  for (const HeldNode* held = HeldNode::innermost_; held != nullptr; held = held->outer_) {
    for (const WaitNode* target : targets) closes_cycle_ = closes_cycle_ || target->reaches(held->node_);
  }
  if (closes_cycle_) return;
  for (const HeldNode* held = HeldNode::innermost_; held != nullptr; held = held->outer_) {
    auto& edges = held->node_.waits_for_;
    edges.reserve(edges.size() + targets.size());  // may throw, so before the first edge is added
    announced->waiting.push_back(&held->node_);
  }
  for (WaitNode* const node : announced->waiting) {
    for (WaitNode* const target : targets) node->waits_for_.push_back({target, announced.get()});
  }
  edges_ = announced.release();
}

void WaitScope::end_wait() noexcept {
  if (edges_ == nullptr) return;  // else only under the lock is it known whether the edges are still there
  const std::scoped_lock lock(graph_mutex());
  for (WaitNode* const node : edges_->waiting) {
    // By scope: an outer wait may end while an inner wait of the same thread is still in progress.
    std::erase_if(node->waits_for_, [this](const WaitNode::Edge& edge) { return edge.scope == edges_; });
  }
  edges_->waiting.clear();
}

void WaitScope::withdraw() noexcept {
  end_wait();
  delete edges_;
}

}  // namespace cox
