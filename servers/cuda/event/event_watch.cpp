#include <coxswain/servers/cuda/event/event_watch.hpp>

#include <coxswain/device_handle/thread/device_thread.hpp>

#include <utility>

namespace cox::detail {

void EventWatch::begin(const std::shared_ptr<CudaEvent>& event) noexcept {
  DeviceThread* const thread = DeviceThread::current();
  // Inside exclusive() this thread may be the one that waits.
  if (thread == nullptr || thread->exclusive() || !event->begin_watch()) return;
  thread->while_idle(*this);  // which ends what was watched before
  event_ = event;
  since_ = std::chrono::steady_clock::now();
}

bool EventWatch::look() noexcept { return !event_->reached() && std::chrono::steady_clock::now() - since_ < longest; }

void EventWatch::end() noexcept { std::exchange(event_, nullptr)->end_watch(); }

}  // namespace cox::detail
