#pragma once

#include <coxswain/device_handle/base/visibility.hpp>

#include <utility>
#include <vector>

namespace cox {

/// A node of the wait graph: a device thread, or an inline device whose lock a thread holds. An edge means that the
/// thread that holds up one node waits for another node. A cycle in this graph is a deadlock, and is found before its
/// last edge is added (law L10).
///
///     device thread A, in a task, blocks on B  =>  edge A -> B until B has completed the call
///
/// Client threads hold nothing up and are not in the graph.
class WaitNode {
 public:
  WaitNode() = default;
  WaitNode(const WaitNode&) = delete;
  WaitNode& operator=(const WaitNode&) = delete;
  virtual ~WaitNode() = default;

 private:
  friend class HeldNode;
  friend class WaitScope;
  struct Edge {
    WaitNode* target;
    const void* scope;  // the WaitScope::Edges that this edge belongs to
  };
  [[nodiscard]] bool reaches(const WaitNode& target) const noexcept;
  std::vector<Edge> waits_for_;  // guarded by the graph's mutex
};

/// The calling thread holds `node` up (keeps it from running other work) until the end of the scope. Scopes nest.
class HeldNode {
 public:
  explicit HeldNode(WaitNode& node) noexcept;
  ~HeldNode();
  HeldNode(const HeldNode&) = delete;
  HeldNode& operator=(const HeldNode&) = delete;

  /// Whether the calling thread holds anything up.
  [[nodiscard]] static bool any_held() noexcept { return innermost_ != nullptr; }

  /// In a forked child: the calling thread no longer holds anything up.
  static void clear() noexcept;

 private:
  friend class WaitScope;
  COX_VISIBILITY_DEFAULT static inline constinit thread_local HeldNode* innermost_ = nullptr;
  WaitNode& node_;
  HeldNode* const outer_;
};

/// Announces that everything that the calling thread holds up will wait for the targets. If that closes a cycle,
/// `closes_cycle()` is true, nothing is announced, and the caller must not wait. Costs nothing for a thread that holds
/// nothing up. The caller must keep the targets alive as long as this object: other threads traverse them.
class WaitScope {
 public:
  explicit WaitScope(WaitNode& target) {
    if (HeldNode::any_held()) [[unlikely]]
      announce(target);
  }
  explicit WaitScope(std::vector<WaitNode*> targets) {
    if (HeldNode::any_held()) [[unlikely]]
      announce(std::move(targets));
  }
  ~WaitScope() {
    if (announced()) [[unlikely]]
      withdraw();
  }
  WaitScope(const WaitScope&) = delete;
  WaitScope& operator=(const WaitScope&) = delete;

  [[nodiscard]] bool closes_cycle() const noexcept { return closes_cycle_; }
  [[nodiscard]] bool announced() const noexcept { return edges_ != nullptr; }

  /// The wait has ended, even if the waiting thread has not noticed it yet. Any thread, before it wakes the waiting
  /// thread.
  void end_wait() noexcept;

 private:
  struct Edges;

  void announce(WaitNode& target);
  void announce(std::vector<WaitNode*> targets);
  void withdraw() noexcept;

  Edges* edges_ = nullptr;  // owned
  bool closes_cycle_ = false;
};

}  // namespace cox
