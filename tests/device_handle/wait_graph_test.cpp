// Parts of the core that stand alone: the waiting graph, completions, running tasks, the block pool.

#include <coxswain/tests/device_handle/contract.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/device_handle/observe/wait_graph.hpp>

using namespace contract;
using cox::HeldNode;
using cox::WaitNode;
using cox::WaitScope;

TEST_CASE("L10: who holds nothing closes no ring", "[wait_graph]") {
  WaitNode node;
  CHECK_FALSE(HeldNode::any_held());
  CHECK_FALSE(WaitScope(node).closes_cycle());
}

TEST_CASE("L10: waiting for what one holds is a ring", "[wait_graph]") {
  WaitNode node;
  const HeldNode held(node);
  CHECK(HeldNode::any_held());
  CHECK(WaitScope(node).closes_cycle());
  WaitNode other;
  CHECK_FALSE(WaitScope(other).closes_cycle());
}

TEST_CASE("L10: a ring over several threads is found by whoever closes it, and open again when one stops waiting",
          "[wait_graph]") {
  WaitNode a;
  WaitNode b;
  WaitNode c;
  Gate b_waits;
  Gate c_waits;
  Gate leave;
  Gate b_left;
  std::thread holds_b([&] {
    const HeldNode held(b);
    {
      const WaitScope waiting(c);
      b_waits.open();
      leave.wait();
    }
    b_left.open();
  });
  std::thread holds_c([&] {
    b_waits.wait();
    const HeldNode held(c);
    const WaitScope waiting(a);
    c_waits.open();
    b_left.wait();
  });
  c_waits.wait();
  const HeldNode held(a);
  const bool ring = WaitScope(b).closes_cycle();
  leave.open();
  b_left.wait();
  const bool ring_after = WaitScope(b).closes_cycle();
  holds_b.join();
  holds_c.join();
  CHECK(ring);
  CHECK_FALSE(ring_after);
}

TEST_CASE("L10: answering an outer wait leaves the edge of the wait inside it", "[L10]") {
  WaitNode waiter;
  WaitNode first;
  WaitNode second;
  const HeldNode held(waiter);
  WaitScope outer(first);
  const WaitScope inner(second);
  outer.end_wait();
  bool ring_through_first = true;
  bool ring_through_second = false;
  std::thread([&] {
    const HeldNode holds_first(first);
    ring_through_first = WaitScope(waiter).closes_cycle();
  }).join();
  std::thread([&] {
    const HeldNode holds_second(second);
    ring_through_second = WaitScope(waiter).closes_cycle();
  }).join();
  CHECK_FALSE(ring_through_first);
  CHECK(ring_through_second);
}
