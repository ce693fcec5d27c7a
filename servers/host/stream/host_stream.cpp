#include <coxswain/servers/host/stream/host_stream.hpp>

#include <coxswain/runtime/error/stream_error.hpp>

#include <utility>

namespace cox::detail {

void HostStream::queue(std::unique_ptr<Piece> piece) noexcept {
  bool was_idle = false;
  ++submitted_;
  {
    const std::lock_guard lock(mutex_);
    Piece* const added = piece.get();
    (last_ != nullptr ? last_->next : first_) = std::move(piece);
    last_ = added;
    was_idle = self_ == nullptr;
    if (was_idle) self_ = shared_from_this();
  }
  if (was_idle) threads_.schedule(*this);
}

void HostStream::fail(std::exception_ptr error) {
  if (capture.capturing()) return capture.fail(std::move(error));
  profiles.mark_all(error);
  record(failure_position(), std::move(error), reports);
}

void HostStream::record(std::uint64_t position, std::exception_ptr error,
                        const std::shared_ptr<FailureReports>& others) {
  if (others != nullptr) {
    others->fail(*errors_, position, error);
  } else {
    errors_->add(position, error);
  }
  report_stream_error(LogSubsystem::Host, {location_, std::move(error)});
}

void HostStream::execute() noexcept {
  for (int i = 0; i < most_at_once; ++i) {
    Piece* const piece = front();
    // In both cases do not access this stream any more: it may be destroyed, or running on another thread.
    if (piece == nullptr || waits_for_others(*piece)) return;
    const std::unique_ptr<Piece> popped = pop();
    run(*popped);
  }
  threads_.schedule(*this);
}

// The next piece. If there is none, the stream becomes idle.
HostStream::Piece* HostStream::front() noexcept {
  std::shared_ptr<HostStream> done;  // released after the lock
  const std::lock_guard lock(mutex_);
  if (first_ == nullptr) done = std::move(self_);
  return first_.get();
}

std::unique_ptr<HostStream::Piece> HostStream::pop() noexcept {
  const std::lock_guard lock(mutex_);
  auto piece = std::move(first_);
  first_ = std::move(piece->next);
  if (first_ == nullptr) last_ = nullptr;
  return piece;
}

// Returns true if this stream waits for another one, and will be scheduled again when that has reached the event.
bool HostStream::waits_for_others(Piece& piece) noexcept {
  for (; !piece.waits.empty(); piece.waits.pop_back()) {
    const HostEvent& event = piece.waits.back();
    if (!event.reached() && event.timeline->notify_at(event.value, *this)) return true;
  }
  return false;
}

void HostStream::run(Piece& piece) noexcept {
  ++started_;
  {
    const StreamScope scope(location_.stream);
    trace::Span span(piece.name, trace::Track::stream(location_.device, location_.stream), trace::Category::Stream,
                     piece.origin);
    try {
      piece.work();
    } catch (...) {
      span.outcome(Outcome::Failed);
      running_profiles_.note(std::current_exception());
      record(2 * started_, std::current_exception(), nullptr);
    }
    // Before the event, so that a thread that waits for the event finds the buffers released (L6, L11).
    piece.work.reset();
  }
  timeline_->advance();
}

}  // namespace cox::detail
