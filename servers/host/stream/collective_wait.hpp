#pragma once

#include <coxswain/device_handle/base/unique_function.hpp>
#include <coxswain/servers/host/stream/timeline.hpp>

#include <memory>
#include <utility>

namespace cox::detail {

/// Waits for ends that are on other timelines, without holding up a stream or a thread.
class CollectiveWait final : private Timeline::Waiter, public std::enable_shared_from_this<CollectiveWait> {
 public:
  /// `then`, which must not throw, is called once, when all of `ends` are reached: by begin(), or on the thread that
  /// reaches the last of them.
  CollectiveWait(HostEvents ends, UniqueFunction<void()> then) : ends_(std::move(ends)), then_(std::move(then)) {}

  /// Once. Any thread.
  void begin() noexcept {
    self_ = shared_from_this();
    go_on();
  }

 private:
  void reached() noexcept override { go_on(); }
  void go_on() noexcept {
    while (!ends_.empty()) {
      awaited_ = std::move(ends_.back());
      ends_.pop_back();
      if (awaited_.timeline != nullptr && awaited_.timeline->notify_at(awaited_.value, *this)) return;  // goes on there
    }
    const std::shared_ptr<CollectiveWait> self = std::move(self_);
    then_();
  }

  HostEvents ends_;
  UniqueFunction<void()> then_;
  HostEvent awaited_;
  std::shared_ptr<CollectiveWait> self_;  // while it waits
};

}  // namespace cox::detail
