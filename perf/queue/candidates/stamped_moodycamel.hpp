#pragma once

#include <coxswain/device_handle/queue/platform.hpp>
#include <coxswain/perf/queue/capacity_gate.hpp>
#include <coxswain/perf/queue/closure.hpp>
#include <coxswain/perf/queue/lane.hpp>
#include <coxswain/perf/queue/parking_spot.hpp>
#include <coxswain/perf/queue/per_lane.hpp>

#include <concurrentqueue.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace cox::perf {

/// Candidate (c1). Every thread has its own producer inside one moodycamel queue; closures are stamped before they are
/// published. The consumer reads a stamp T, then all producers, and runs in stamp order what was stamped before T.
/// Obeys L1: what was pushed before a closure seen stamped below T was published before T, and so is seen too.
/// The bound is split over the producers: 1/8 each.
class StampedMoodycamel {
 public:
  explicit StampedMoodycamel(const LaneOptions& options) : options_(options), thread_([this] { consume(); }) {}

  template <class F>
  void push(F&& f) {
    auto& producer = of_this_thread<Producer>(number_, [this]() -> auto& { return new_producer(); });
    producer.gate.pass(producer.pushed++);
    queue_.enqueue(producer.token, Item{SystemPlatform::now(), Body(std::forward<F>(f))});
    ready_.notify();
  }

  void stop() {
    push([this] { stopping_ = true; });
    thread_.join();
  }

 private:
  using Body = Closure<56>;
  struct Item {
    std::uint64_t stamp = 0;
    Body body;
  };
  static_assert(sizeof(Item) == 64);

  struct Producer {
    Producer(moodycamel::ConcurrentQueue<Item>& queue, std::size_t capacity, Producer* after)
        : token(queue), gate(capacity), following(after) {}

    moodycamel::ProducerToken token;
    std::uint64_t pushed = 0;
    CapacityGate gate;
    Producer* const following;
    // From here on the consumer's: closures taken out and not yet run.
    alignas(64) std::size_t next = 0;
    std::size_t count = 0;
    std::uint64_t ran = 0;
    std::array<Item, 64> taken;

    bool empty() const { return next == count; }
    std::uint64_t first_stamp() const { return taken[next].stamp; }
    std::uint64_t last_stamp() const { return taken[count - 1].stamp; }
  };

  Producer& new_producer() {
    const std::lock_guard lock(mutex_);
    owned_.push_back(std::make_unique<Producer>(queue_, options_.capacity / 8, producers_.load()));
    producers_.store(owned_.back().get(), std::memory_order_release);
    return *owned_.back();
  }

  // Takes what is there and returns the stamp below which nothing is missing.
  std::uint64_t take_all() {
    std::uint64_t horizon = SystemPlatform::now_fenced();
    pending_.clear();
    for (Producer* p = producers_.load(std::memory_order_acquire); p != nullptr; p = p->following) {
      bool all = false;
      if (p->empty()) {
        p->next = 0;
        p->count = queue_.try_dequeue_bulk_from_producer(p->token, p->taken.begin(), p->taken.size());
        all = p->count < p->taken.size();
      }
      if (p->empty()) continue;
      pending_.push_back(p);
      if (!all) horizon = std::min(horizon, p->last_stamp() + 1);
    }
    return horizon;
  }

  void run_one(Producer& producer) {
    producer.taken[producer.next++].body.run();
    if (++producer.ran % 64 == 0) producer.gate.consumed(producer.ran);
  }

  void run_below(std::uint64_t horizon) {
    while (!pending_.empty()) {
      auto first = pending_.begin();
      std::uint64_t limit = horizon;
      for (auto other = std::next(first); other != pending_.end(); ++other) {
        if ((*other)->first_stamp() < (*first)->first_stamp()) {
          limit = std::min(limit, (*first)->first_stamp());
          first = other;
        } else {
          limit = std::min(limit, (*other)->first_stamp());
        }
      }
      Producer& producer = **first;
      if (producer.first_stamp() >= horizon) return;
      do run_one(producer);
      while (!producer.empty() && producer.first_stamp() < limit);
      if (producer.empty()) pending_.erase(first);
    }
  }

  void consume() {
    while (!stopping_) {
      const std::uint64_t horizon = take_all();
      if (pending_.empty()) ready_.wait(options_.spin, [this] { return queue_.size_approx() != 0; });
      run_below(horizon);
    }
  }

  const LaneOptions options_;
  const std::uint64_t number_ = next_lane_number();
  ParkingSpot ready_;
  moodycamel::ConcurrentQueue<Item> queue_;
  std::mutex mutex_;  // guards owned_
  std::vector<std::unique_ptr<Producer>> owned_;
  std::atomic<Producer*> producers_{nullptr};
  alignas(64) std::vector<Producer*> pending_;  // consumer only, like all below
  bool stopping_ = false;
  std::thread thread_;
};

static_assert(Lane<StampedMoodycamel>);

}  // namespace cox::perf
