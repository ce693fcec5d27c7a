#include <coxswain/runtime/async/milestone_set.hpp>

#include <algorithm>

namespace cox {

bool MilestoneSet::reached() noexcept {
  return std::ranges::all_of(milestones_, [](const auto& milestone) { return milestone->reached(); });
}

void MilestoneSet::wait() noexcept {
  for (const auto& milestone : milestones_) milestone->wait();
}

bool MilestoneSet::wait_until(std::chrono::steady_clock::time_point deadline) noexcept {
  return std::ranges::all_of(milestones_, [&](const auto& milestone) { return milestone->wait_until(deadline); });
}

void MilestoneSet::notify(UniqueFunction<void()> function) {
  notify_from(0, std::make_shared<UniqueFunction<void()>>(std::move(function)));
}

// One after the other: who is told of the last one calls.
void MilestoneSet::notify_from(std::size_t next, const Function& function) {
  milestones_[next]->notify([self = shared_from_this(), next, function] {
    if (next + 1 < self->milestones_.size()) {
      try {
        return self->notify_from(next + 1, function);
      } catch (...) {  // no memory to be told of the next: then this thread waits
        self->wait();
      }
    }
    (*function)();
  });
}

}  // namespace cox
