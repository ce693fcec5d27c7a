#include <coxswain/runtime/detail/stream_errors.hpp>

#include <coxswain/runtime/server_error.hpp>

#include <algorithm>
#include <utility>

namespace cox::detail {

void StreamErrors::add(std::uint64_t position, std::exception_ptr error) noexcept {
  const std::lock_guard lock(mutex_);
  if (failures_.size() < kept) {
    failures_.push_back({position, std::move(error)});
    note_whether_any();
  } else {
    ++forgotten_;
  }
}

std::exception_ptr StreamErrors::take_before(std::uint64_t position, const Place& place, std::source_location site) {
  if (empty()) [[likely]]
    return nullptr;
  std::vector<Failure> taken;
  std::size_t forgotten = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto later = std::stable_partition(failures_.begin(), failures_.end(),
                                             [&](const Failure& failure) { return failure.position >= position; });
    taken.assign(std::move_iterator(later), std::move_iterator(failures_.end()));
    failures_.erase(later, failures_.end());
    note_whether_any();
    if (!taken.empty()) forgotten = std::exchange(forgotten_, 0);
  }
  return unhealthy(std::move(taken), forgotten, place, site);
}

std::exception_ptr StreamErrors::forget_between(std::uint64_t first, std::uint64_t last) {
  if (empty()) [[likely]]
    return nullptr;
  const std::lock_guard lock(mutex_);
  const auto within = [&](const Failure& failure) { return failure.position > first && failure.position < last; };
  const Failure* earliest = nullptr;
  for (const Failure& failure : failures_)
    if (within(failure) && (earliest == nullptr || failure.position < earliest->position)) earliest = &failure;
  std::exception_ptr error = earliest == nullptr ? nullptr : earliest->error;
  std::erase_if(failures_, within);
  note_whether_any();
  return error;
}

std::exception_ptr StreamErrors::peek(const Place& place, std::source_location site) const {
  if (empty()) [[likely]]
    return nullptr;
  std::vector<Failure> copies;
  std::size_t forgotten = 0;
  {
    const std::lock_guard lock(mutex_);
    copies = failures_;
    forgotten = forgotten_;
  }
  return unhealthy(std::move(copies), forgotten, place, site);
}

std::exception_ptr StreamErrors::unhealthy(std::vector<Failure> failures, std::size_t forgotten, const Place& place,
                                           std::source_location site) {
  if (failures.empty()) return nullptr;
  // A failure found when the work was queued is known before the failures of work queued earlier that still runs.
  std::stable_sort(failures.begin(), failures.end(),
                   [](const Failure& a, const Failure& b) { return a.position < b.position; });
  std::vector<std::exception_ptr> errors;
  errors.reserve(failures.size());
  for (Failure& failure : failures) errors.push_back(std::move(failure.error));
  return std::make_exception_ptr(ServerError::unhealthy(place, std::move(errors), forgotten, site));
}

}  // namespace cox::detail
