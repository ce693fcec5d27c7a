#pragma once

#include <coxswain/perf/queue/closure.hpp>
#include <coxswain/perf/queue/lane.hpp>
#include <coxswain/perf/queue/per_lane.hpp>

#include <blockingconcurrentqueue.h>

#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace cox::perf {

/// moodycamel::BlockingConcurrentQueue of 64-byte closures, taken in bulk; its semaphore spins, then parks.
/// Breaks L1 between producers. Has no bound.
template <bool Tokens>
class MoodycamelQueue {
 public:
  explicit MoodycamelQueue(const LaneOptions&) : thread_([this] { consume(); }) {}

  template <class F>
  void push(F&& f) {
    if constexpr (Tokens) {
      auto& token = of_this_thread<moodycamel::ProducerToken>(number_, [this]() -> auto& { return new_token(); });
      queue_.enqueue(token, Item(std::forward<F>(f)));
    } else {
      queue_.enqueue(Item(std::forward<F>(f)));
    }
  }

  void stop() {
    push([this] { stopping_ = true; });
    thread_.join();
  }

 private:
  using Item = Closure<64>;

  moodycamel::ProducerToken& new_token() {
    const std::lock_guard lock(mutex_);
    return *tokens_.emplace_back(std::make_unique<moodycamel::ProducerToken>(queue_));
  }

  void consume() {
    moodycamel::ConsumerToken token(queue_);
    std::vector<Item> items(64);
    while (!stopping_ || queue_.size_approx() != 0) {
      const std::size_t count = queue_.wait_dequeue_bulk(token, items.begin(), items.size());
      for (std::size_t i = 0; i < count; ++i) items[i].run();
    }
  }

  const std::uint64_t number_ = next_lane_number();
  moodycamel::BlockingConcurrentQueue<Item> queue_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<moodycamel::ProducerToken>> tokens_;
  bool stopping_ = false;  // consumer only
  std::thread thread_;
};

static_assert(Lane<MoodycamelQueue<true>> && Lane<MoodycamelQueue<false>>);

}  // namespace cox::perf
