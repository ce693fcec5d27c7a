#pragma once

#include <coxswain/device_handle/queue/mailbox.hpp>
#include <coxswain/device_handle/queue/platform.hpp>
#include <coxswain/perf/queue/lane.hpp>
#include <coxswain/perf/queue/per_lane.hpp>

#include <chrono>
#include <thread>
#include <type_traits>
#include <utility>

namespace cox::perf {

/// Candidate (c2), the lane of the library: cox::Mailbox with nothing above it. Stamped lanes over segments, one lane a
/// producer. Obeys L1.
class MailboxLane {
 public:
  explicit MailboxLane(const LaneOptions& options)
      : spin_(options.spin),
        mailbox_(options.capacity == 0 ? QueuePolicy::Grow : QueuePolicy::Block, options.capacity) {
    prepare_platform();
    thread_ = std::thread([this] { consume(); });
  }

  template <class F>
  void push(F&& f) {
    auto& lane = of_this_thread<Mailbox::Lane>(number_, [this]() -> auto& { return mailbox_.acquire_lane(); });
    mailbox_.push(lane, Bare<std::decay_t<F>>{std::forward<F>(f)}, 0);
  }

  void stop() {
    mailbox_.close();
    thread_.join();
  }

 private:
  template <class F>
  struct Bare {
    F f;
    Outcome operator()() noexcept {
      f();
      return Outcome::Completed;
    }
    void discard(CallError::Kind) noexcept {}
  };

  std::size_t run_ready() {
    return mailbox_.run_ready([](const Mailbox::Item& item) {
      item.ops->run(item.object);
      return true;
    });
  }

  void consume() {
    while (!mailbox_.closing()) {
      if (run_ready() == 0 && !spin()) mailbox_.park();
    }
    mailbox_.quiesce();
    while (!mailbox_.empty()) run_ready();
  }

  // Whether there was work before the spinning time was over.
  bool spin() {
    const auto end = std::chrono::steady_clock::now() + spin_;
    do {
      for (int i = 0; i < 16; ++i) {
        if (run_ready() != 0) return true;
        SystemPlatform::pause();
      }
    } while (std::chrono::steady_clock::now() < end);
    return false;
  }

  const std::uint64_t number_ = next_lane_number();
  const std::chrono::nanoseconds spin_;
  Mailbox mailbox_;
  std::thread thread_;
};

static_assert(Lane<MailboxLane>);

}  // namespace cox::perf
