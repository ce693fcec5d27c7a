#include <coxswain/servers/cuda/detail/event_set.hpp>

#include <algorithm>

namespace cox::detail {

std::shared_ptr<Milestone> EventSet::of(Events events) {
  if (events.size() == 1) return std::move(events.front());
  return std::make_shared<EventSet>(std::move(events));
}

bool EventSet::reached() noexcept {
  return std::ranges::all_of(events_, [](const auto& event) { return event->reached(); });
}

void EventSet::wait() noexcept {
  for (const auto& event : events_) event->wait();
}

bool EventSet::wait_until(std::chrono::steady_clock::time_point deadline) noexcept {
  return std::ranges::all_of(events_, [&](const auto& event) { return event->wait_until(deadline); });
}

void EventSet::notify(UniqueFunction<void()> function) {
  notify_from(0, std::make_shared<UniqueFunction<void()>>(std::move(function)));
}

// One after the other: who is told of the last one calls.
void EventSet::notify_from(std::size_t next, const Function& function) {
  events_[next]->notify([self = shared_from_this(), next, function] {
    if (next + 1 < self->events_.size()) {
      try {
        return self->notify_from(next + 1, function);
      } catch (...) {  // no memory to be told of the next: then this thread waits
        self->wait();
      }
    }
    (*function)();
  });
}

}  // namespace cox::detail
