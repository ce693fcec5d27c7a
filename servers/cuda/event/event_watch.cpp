#include <coxswain/servers/cuda/event/event_watch.hpp>

#include <utility>

namespace cox::detail {

void EventWatch::begin(const std::shared_ptr<CudaEvent>& event) noexcept {
  // Inside exclusive() this thread may itself be the one that waits.
  if (thread_ == nullptr || !thread_->can_defer() || !event->begin_watch()) return;
  thread_->poll_while_idle(*this);  // ends the previous watch
  event_ = event;
  since_ = std::chrono::steady_clock::now();
}

bool EventWatch::poll() noexcept { return !event_->reached() && std::chrono::steady_clock::now() - since_ < longest; }

void EventWatch::end() noexcept { std::exchange(event_, nullptr)->end_watch(); }

}  // namespace cox::detail
