#include <coxswain/servers/host/detail/host_stream.hpp>

#include <coxswain/runtime/stream_error.hpp>

#include <boost/asio/post.hpp>

#include <limits>
#include <utility>

namespace cox::detail {

void HostStream::submit(HostEvents waits, UniqueFunction<void()> work, const char* name) {
  boost::asio::post(strand_, [self = shared_from_this(),
                              piece = Piece{std::move(waits), std::move(work), name, trace::origin()}]() mutable {
    self->accept(std::move(piece));
  });
  ++submitted_;
}

std::exception_ptr HostStream::take_errors(std::source_location site) {
  return errors_.take_before(std::numeric_limits<std::uint64_t>::max(), place_, site);
}

void HostStream::fail(std::exception_ptr error) {
  if (capture.capturing()) return capture.fail(std::move(error));
  profiles.mark_all(error);
  record(2 * submitted_ + 1, std::move(error));
}

void HostStream::record(std::uint64_t position, std::exception_ptr error) {
  errors_.add(position, error);
  report_stream_error(LogSubsystem::Host, {place_, std::move(error)});
}

void HostStream::accept(Piece piece) {
  pieces_.push_back(std::move(piece));
  if (!waiting_) run_ready();
}

void HostStream::run_ready() {
  while (!pieces_.empty()) {
    if (wait_for_others(pieces_.front())) return;
    Piece piece = std::move(pieces_.front());
    pieces_.pop_front();
    run(std::move(piece));
  }
}

bool HostStream::wait_for_others(Piece& piece) {
  while (!piece.waits.empty()) {
    const HostEvent event = std::move(piece.waits.back());
    piece.waits.pop_back();
    if (event.reached()) continue;
    waiting_ = true;
    event.timeline->when(event.value, [self = shared_from_this()] {
      boost::asio::post(self->strand_, [self] {
        self->waiting_ = false;
        self->run_ready();
      });
    });
    return true;
  }
  return false;
}

void HostStream::run(Piece piece) {
  ++started_;
  {
    const StreamScope scope(place_.stream);
    trace::Span span(piece.name, trace::Track::stream(place_.device, place_.stream), trace::Category::Stream,
                     piece.origin);
    try {
      piece.work();
    } catch (...) {
      span.outcome(Outcome::Failed);
      running_profiles_.note(std::current_exception());
      record(2 * started_, std::current_exception());
    }
    piece.work.reset();  // Before the event: who waits for it finds the buffers given back (L6, L11).
  }
  timeline_->advance();
}

}  // namespace cox::detail
