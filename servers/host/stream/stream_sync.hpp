#pragma once

#include <coxswain/runtime/async/promise.hpp>
#include <coxswain/runtime/error/stream_errors.hpp>
#include <coxswain/servers/host/stream/host_stream.hpp>
#include <coxswain/servers/host/stream/timeline.hpp>

#include <exception>
#include <memory>
#include <optional>
#include <source_location>
#include <utility>

namespace cox::detail {

/// A sync of a stream whose collectives have not ended (L15). It completes when they have ended, without blocking the
/// stream or a thread. From begin() on only the report of a failure allocates.
class StreamSync final : private Timeline::Waiter, public std::enable_shared_from_this<StreamSync> {
 public:
  /// `event`: of the piece of the stream that calls begin(). `ends`: of the collectives.
  StreamSync(std::shared_ptr<HostStream> stream, HostEvent event, std::source_location site, HostEvents ends,
             Promise<void> promise)
      : stream_(std::move(stream)),
        event_(std::move(event)),
        site_(site),
        ends_(std::move(ends)),
        promise_(std::move(promise)) {}

  /// Called once, by the piece of `event`: all earlier pieces have run.
  void begin() noexcept {
    turn_.emplace(stream_->errors(), HostStream::error_position(event_));
    self_ = shared_from_this();
    go_on();
  }

 private:
  void reached() noexcept override { go_on(); }
  void go_on() noexcept {
    while (!ends_.empty()) {
      awaited_ = std::move(ends_.back());
      ends_.pop_back();
      if (awaited_.timeline != nullptr && awaited_.timeline->notify_at(awaited_.value, *this)) return;  // to reached()
    }
    const std::shared_ptr<StreamSync> self = std::move(self_);
    finish();
  }
  void finish() noexcept {
    TakenError error;
    try {
      error = stream_->take_errors_before(event_, site_);
    } catch (...) {
      error = {std::current_exception()};
    }
    turn_.reset();
    if (error) return promise_.set_error(std::move(error));
    promise_.set_value();
  }

  const std::shared_ptr<HostStream> stream_;
  const HostEvent event_;
  const std::source_location site_;
  HostEvents ends_;
  Promise<void> promise_;
  std::optional<StreamErrors::Turn> turn_;
  HostEvent awaited_;
  std::shared_ptr<StreamSync> self_;  // set while it waits: keeps this alive
};

}  // namespace cox::detail
