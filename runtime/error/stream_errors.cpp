#include <coxswain/runtime/error/stream_errors.hpp>

#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/runtime/error/server_error.hpp>

#include <algorithm>
#include <limits>
#include <utility>

namespace cox::detail {

/// Holds failures that were taken from a stream; returns them to it if destroyed before they are delivered.
class StreamErrors::Receipt final : public ErrorReceipt {
 public:
  Receipt(std::shared_ptr<StreamErrors> from, Taken taken) noexcept
      : from_(std::move(from)), taken_(std::move(taken)) {}
  ~Receipt() override {
    if (from_ == nullptr) return;
    for (Failure& failure : taken_.failures) from_->add(std::move(failure));
    const std::lock_guard lock(from_->mutex_);
    from_->dropped_ += taken_.dropped;
  }

  void delivered() noexcept override {
    for (const Failure& failure : taken_.failures) failure.note_delivered();
    from_.reset();
  }
  /// Another receipt now holds the failures, and returns them if they are not delivered.
  void give_up() noexcept { from_.reset(); }
  [[nodiscard]] const Taken& taken() const noexcept { return taken_; }

 private:
  std::shared_ptr<StreamErrors> from_;
  Taken taken_;
};

StreamErrors::~StreamErrors() {
  try {
    if (auto error = take_remaining(location_, std::source_location::current()))
      report_task_error({location_.device, location_.stream, std::move(error)});
  } catch (...) {
    report_task_error({location_.device, location_.stream, std::current_exception()});
  }
}

void StreamErrors::add(std::uint64_t position, std::exception_ptr error) noexcept { add({position, std::move(error)}); }

void StreamErrors::add(Failure failure) noexcept {
  const std::lock_guard lock(mutex_);
  if (failures_.size() < max_failures) {
    failures_.push_back(std::move(failure));
    update_has_failures();
  } else {
    ++dropped_;
  }
}

template <class Which>
StreamErrors::Taken StreamErrors::take(const Which& which) {
  Taken taken;
  const std::lock_guard lock(mutex_);
  std::erase_if(failures_, [](const Failure& failure) { return failure.is_stale(); });
  const auto left =
      std::stable_partition(failures_.begin(), failures_.end(), [&](const Failure& each) { return !which(each); });
  taken.failures.assign(std::move_iterator(left), std::move_iterator(failures_.end()));
  failures_.erase(left, failures_.end());
  update_has_failures();
  // The number of failures that were not kept is reported together with those that were.
  if (!taken.failures.empty() || failures_.empty()) taken.dropped = std::exchange(dropped_, 0);
  return taken;
}

StreamErrors::Taken StreamErrors::take_before(std::uint64_t position) {
  return take(
      [&](const Failure& failure) { return failure.position < position && !is_left_to_other(failure, position); });
}

// If memory is exhausted, the wait is not registered: a later wait may then take its late failures.
void StreamErrors::begin_turn(std::uint64_t position) noexcept {
  const std::lock_guard lock(mutex_);
  try {
    turns_.push_back(position);
  } catch (...) {
    return;
  }
}

void StreamErrors::end_turn(std::uint64_t position) noexcept {
  const std::lock_guard lock(mutex_);
  if (const auto found = std::ranges::find(turns_, position); found != turns_.end()) turns_.erase(found);
}

// Lock held. Whether a wait that is registered at a position between the failure and `position` is to take the failure.
bool StreamErrors::is_left_to_other(const Failure& failure, std::uint64_t position) const noexcept {
  return std::ranges::any_of(turns_, [&](std::uint64_t turn) { return failure.position < turn && turn < position; });
}

std::exception_ptr StreamErrors::take_before(std::uint64_t position, const Location& location,
                                             std::source_location site) {
  if (empty()) [[likely]]
    return nullptr;
  return deliver(take_before(position), location, site);
}

TakenError StreamErrors::take_for_future(const std::shared_ptr<StreamErrors>& from, std::uint64_t position,
                                         const Location& location, std::source_location site) {
  if (from->empty()) [[likely]]
    return {};
  Taken taken = from->take_before(position);
  if (taken.failures.empty()) return {};
  std::exception_ptr error = unhealthy(taken, location, site);
  return {std::move(error), std::make_shared<Receipt>(from, std::move(taken))};
}

TakenError StreamErrors::take_later(TakenError earlier, const std::shared_ptr<StreamErrors>& from,
                                    std::uint64_t position, const Location& location, std::source_location site) {
  const auto receipt = std::dynamic_pointer_cast<Receipt>(earlier.receipt);
  if (receipt == nullptr || from->empty()) return earlier;
  Receipt later(from, from->take_before(position));
  if (later.taken().failures.empty()) return earlier;
  Taken all = receipt->taken();
  for (const Failure& failure : later.taken().failures) all.failures.push_back(failure);
  all.dropped += later.taken().dropped;
  std::ranges::stable_sort(all.failures, {}, &Failure::position);
  std::exception_ptr error = unhealthy(all, location, site);
  auto joined = std::make_shared<Receipt>(from, std::move(all));
  receipt->give_up();
  later.give_up();
  return {std::move(error), std::move(joined)};
}

// If the receipt cannot be allocated, a future that is dropped loses the failure.
TakenError StreamErrors::of_operation(const std::shared_ptr<StreamErrors>& stream, std::uint64_t position,
                                      std::exception_ptr error) noexcept {
  TakenError taken{std::move(error)};
  try {
    Taken failure;
    failure.failures.push_back({position, taken.error});
    taken.receipt = std::make_shared<Receipt>(stream, std::move(failure));
  } catch (...) {
  }
  return taken;
}

std::exception_ptr StreamErrors::take_known(const Location& location, std::source_location site) {
  if (empty()) [[likely]]
    return nullptr;
  return deliver(take([this](const Failure& failure) {
                   return !is_of_profile(failure) &&
                          !is_left_to_other(failure, std::numeric_limits<std::uint64_t>::max());
                 }),
                 location, site);
}

std::exception_ptr StreamErrors::take_remaining(const Location& location, std::source_location site) {
  if (empty()) [[likely]]
    return nullptr;
  const Taken taken = take_before(std::numeric_limits<std::uint64_t>::max());
  if (taken.failures.empty()) return nullptr;
  for (const Failure& failure : taken.failures) {
    if (failure.shared == nullptr) continue;
    failure.shared->by_helper.store(true);
    failure.shared->by_callers.store(true);
  }
  return unhealthy(taken, location, site);
}

std::exception_ptr StreamErrors::peek(const Location& location, std::source_location site) const {
  if (empty()) [[likely]]
    return nullptr;
  Taken copy;
  {
    const std::lock_guard lock(mutex_);
    for (const Failure& failure : failures_)
      if (!failure.is_stale() && !is_of_profile(failure) &&
          !is_left_to_other(failure, std::numeric_limits<std::uint64_t>::max()))
        copy.failures.push_back(failure);
    copy.dropped = dropped_;
  }
  return unhealthy(copy, location, site);
}

std::exception_ptr StreamErrors::remove_between(std::uint64_t first, std::uint64_t last) noexcept {
  if (empty()) [[likely]]
    return nullptr;
  const std::lock_guard lock(mutex_);
  const auto within = [&](const Failure& failure) { return failure.position > first && failure.position < last; };
  const Failure* earliest = nullptr;
  for (const Failure& failure : failures_)
    if (within(failure) && (earliest == nullptr || failure.position < earliest->position)) earliest = &failure;
  std::exception_ptr error = earliest == nullptr ? nullptr : earliest->error;
  std::erase_if(failures_, within);
  if (failures_.empty()) dropped_ = 0;
  update_has_failures();
  return error;
}

TakenError StreamErrors::take_for_profile(const std::shared_ptr<StreamErrors>& from, std::uint64_t first,
                                          std::uint64_t last) {
  if (from->empty()) [[likely]]
    return {};
  Taken taken = from->take([&](const Failure& failure) { return failure.position > first && failure.position < last; });
  if (taken.failures.empty()) return {};
  std::exception_ptr error = std::ranges::min_element(taken.failures, {}, &Failure::position)->error;
  return {std::move(error), std::make_shared<Receipt>(from, std::move(taken))};
}

void StreamErrors::begin_profile(std::uint64_t begin) {
  const std::lock_guard lock(mutex_);
  profiles_.push_back({begin, std::numeric_limits<std::uint64_t>::max()});
}

void StreamErrors::bound_profile(std::uint64_t begin, std::uint64_t end) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(profiles_, begin, &Profile::begin);
  if (found != profiles_.end()) found->end = end;
}

void StreamErrors::end_profile(std::uint64_t begin) noexcept {
  const std::lock_guard lock(mutex_);
  std::erase_if(profiles_, [&](const Profile& profile) { return profile.begin == begin; });
}

// Lock held.
bool StreamErrors::is_of_profile(const Failure& failure) const noexcept {
  return std::ranges::any_of(profiles_, [&](const Profile& profile) {
    return failure.position > profile.begin && failure.position < profile.end;
  });
}

std::exception_ptr StreamErrors::deliver(const Taken& taken, const Location& location, std::source_location site) {
  for (const Failure& failure : taken.failures) failure.note_delivered();
  return unhealthy(taken, location, site);
}

std::exception_ptr StreamErrors::unhealthy(const Taken& taken, const Location& location, std::source_location site) {
  if (taken.failures.empty()) return nullptr;
  std::vector<const Failure*> failures;
  failures.reserve(taken.failures.size());
  for (const Failure& failure : taken.failures) failures.push_back(&failure);
  // Sort by stream position: a failure that is detected at submission is recorded before the failures of earlier work
  // that is still running.
  std::ranges::stable_sort(failures, {}, [](const Failure* failure) { return failure->position; });
  std::vector<std::exception_ptr> errors;
  errors.reserve(failures.size());
  for (const Failure* failure : failures) errors.push_back(failure->error);
  return std::make_exception_ptr(ServerError::unhealthy(location, std::move(errors), taken.dropped, site));
}

}  // namespace cox::detail
