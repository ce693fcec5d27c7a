#pragma once

#include <coxswain/perf/queue/candidates/node_pool.hpp>
#include <coxswain/perf/queue/capacity_gate.hpp>
#include <coxswain/perf/queue/lane.hpp>
#include <coxswain/perf/queue/parking_spot.hpp>
#include <coxswain/perf/queue/per_lane.hpp>

#include <atomic>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace cox::perf {

/// Candidate (b). A linked list with one exchange a push; nodes come from the pushing thread's own pool and go back to
/// it. Obeys L1: the exchange puts all pushes in one order. The bound is split over the producers: 1/8 each.
class IntrusiveList {
 public:
  explicit IntrusiveList(const LaneOptions& options)
      : options_(options), last_(&stub_), thread_([this] { consume(); }) {}

  template <class F>
  void push(F&& f) {
    using G = std::decay_t<F>;
    static_assert(alignof(G) <= alignof(Node));
    constexpr std::size_t kind = NodePool::kind_for(sizeof(Node) + sizeof(G));
    static_assert(kind < NodePool::kinds);
    auto& producer = of_this_thread<Producer>(number_, [this]() -> auto& { return new_producer(); });
    producer.gate.pass(producer.pushed++);
    Node* node = producer.allocate(kind);
    ::new (static_cast<void*>(node + 1)) G(std::forward<F>(f));
    node->run = [](Node* self) {
      G& g = *std::launder(reinterpret_cast<G*>(self + 1));
      g();
      g.~G();
    };
    node->next.store(nullptr, std::memory_order_relaxed);
    Node* before = last_.exchange(node, std::memory_order_acq_rel);
    before->next.store(node, std::memory_order_release);  // partner: the acquire in consume
    ready_.notify();
  }

  void stop() {
    push([this] { stopping_ = true; });
    thread_.join();
  }

 private:
  using Node = NodePool::Node;

  struct Producer : NodePool {
    explicit Producer(std::size_t capacity) : gate(capacity) {}
    std::uint64_t pushed = 0;
    CapacityGate gate;
    alignas(64) std::uint64_t ran = 0;  // consumer only
  };

  Producer& new_producer() {
    const std::lock_guard lock(mutex_);
    return *producers_.emplace_back(std::make_unique<Producer>(options_.capacity / 8));
  }

  void consume() {
    Node* done = &stub_;
    while (!stopping_) {
      Node* node = done->next.load(std::memory_order_acquire);
      if (node == nullptr) {
        ready_.wait(options_.spin, [&] { return (node = done->next.load(std::memory_order_acquire)) != nullptr; });
      }
      node->run(node);
      auto& producer = static_cast<Producer&>(*node->owner);
      if (++producer.ran % 64 == 0) producer.gate.consumed(producer.ran);
      if (done != &stub_) done->owner->recycle(done);
      done = node;
    }
    done->owner->recycle(done);
  }

  const LaneOptions options_;
  const std::uint64_t number_ = next_lane_number();
  ParkingSpot ready_;
  Node stub_;
  std::mutex mutex_;  // guards producers_
  std::vector<std::unique_ptr<Producer>> producers_;
  alignas(64) std::atomic<Node*> last_;  // own line: all producers write it
  alignas(64) bool stopping_ = false;    // consumer only
  std::thread thread_;
};

static_assert(Lane<IntrusiveList>);

}  // namespace cox::perf
