#pragma once

#include <utility>
#include <vector>

namespace cox {

/// Who waits for whom among the things that a thread can hold up: device threads, and inline devices whose lock a
/// thread holds. A cycle in this graph is a deadlock, and is found before the last edge is drawn (law L10).
///
///     device thread A, in a task, blocks on B  =>  edge A -> B until B has answered
///
/// Client threads hold nothing and are not in the graph.
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
    const void* scope;  // the WaitScope's edges that this one is of
  };
  [[nodiscard]] bool reaches(const WaitNode& target) const noexcept;
  std::vector<Edge> waits_for_;  // guarded by the graph's mutex
};

/// The calling thread holds `node` up until the end of the scope. Scopes nest.
class HeldNode {
 public:
  explicit HeldNode(WaitNode& node) noexcept;
  ~HeldNode();
  HeldNode(const HeldNode&) = delete;
  HeldNode& operator=(const HeldNode&) = delete;

  /// Whether the calling thread holds anything up.
  [[nodiscard]] static bool any_held() noexcept { return innermost_ != nullptr; }

  /// In a forked child: the calling thread holds nothing up any more.
  static void clear() noexcept;

 private:
  friend class WaitScope;
  static inline constinit thread_local HeldNode* innermost_ = nullptr;
  WaitNode& node_;
  HeldNode* const outer_;
};

/// Announces that everything the calling thread holds up will wait for the targets. If that closes a cycle,
/// `closes_cycle()` is true, nothing was announced, and the caller must not wait. Costs nothing for a thread that holds
/// nothing. The caller keeps the targets alive while this lives: other threads walk over them.
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

  /// The wait is over, though the waiter may not have noticed yet. Any thread, before it wakes the waiter.
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
