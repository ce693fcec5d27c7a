// NcclCommunicator: operations in flight are polled, and their deadlines and NCCL's errors checked.

#include <coxswain/collectives/nccl/nccl_communicator.hpp>
#include <coxswain/collectives/nccl/nccl_try.hpp>
#include <coxswain/collectives/watch/device_activity.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>
#include <coxswain/runtime/communication/world_process.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace cox {

using detail::InFlightOperations;
using detail::NcclResult;

namespace {

// The time that NCCL is allowed at least for creating communicators. It takes tenths of a second, but may first wait
// for running kernels.
constexpr std::chrono::seconds patience_with_nccl{60};

std::exception_ptr error(CollectiveError::Kind kind, const std::string& what, std::source_location site = {},
                         const std::exception_ptr& cause = nullptr) {
  return std::make_exception_ptr(CollectiveError(kind, what, site, cause));
}

}  // namespace

// Under the lock.
bool NcclCommunicator::is_in_flight() const noexcept {
  return std::ranges::any_of(lanes_, [](const Lane& lane) { return !lane.in_flight_.empty(); });
}

// Asks the driver without the lock: a call may block while kernels run that wait for other processes, and the threads
// of the links need the lock.
void NcclCommunicator::poll() noexcept {
  for_each_lane([this](Lane& lane) {
    while (const auto oldest = this->oldest(lane)) {
      if (!oldest->has_ended()) return;
      InFlightOperations::CompletedBatch completed(lane.in_flight_);
      const std::lock_guard lock(mutex_);
      lane.in_flight_.pop(*oldest, completed);
    }
  });
}

// nullopt also without memory.
std::optional<InFlightOperations::Oldest> NcclCommunicator::oldest(const Lane& lane) const noexcept try {
  const std::lock_guard lock(mutex_);
  return lane.in_flight_.oldest();
} catch (...) {
  return std::nullopt;
}

std::optional<NcclCommunicator::Time> NcclCommunicator::check_deadlines(Time now) noexcept {
  std::exception_ptr failure = failure_of_creation(now);
  if (failure == nullptr) {
    poll();
    bool made = false;
    {
      const std::lock_guard lock(mutex_);
      made = state_ > State::Creating;
      // A creation is watched also when it was aborted: NCCL may not return from it.
      const bool creates = is_creating() && !creation_abandoned_;
      if (!creates && (aborted_ || !is_in_flight())) {
        watched_ = false;
        return std::nullopt;
      }
    }
    for_each_lane([&](Lane& lane) {
      if (failure == nullptr) failure = overdue(lane, now);
    });
    if (failure == nullptr && made) failure = failure_in_nccl();
  }
  if (failure != nullptr) {
    abort(failure);
    const std::lock_guard lock(mutex_);
    if (!is_creating() || creation_abandoned_) {
      watched_ = false;
      return std::nullopt;
    }
  }
  return now + std::clamp<std::chrono::milliseconds>(timeout_ / 16, std::chrono::milliseconds(1),
                                                     std::chrono::milliseconds(100));
}

// Returns null if nothing is created, or the creation may go on.
std::exception_ptr NcclCommunicator::failure_of_creation(Time now) noexcept {
  std::shared_ptr<void> quiesced;  // released outside the lock
  std::unique_lock lock(mutex_);
  if (!is_creating() || creation_abandoned_) return nullptr;
  lock.unlock();
  const bool is_lost = devices_.is_lost();
  lock.lock();
  if (!is_creating() || creation_abandoned_) return nullptr;
  const auto patience = std::max<std::chrono::milliseconds>(timeout_, patience_with_nccl);
  const bool is_overdue = creating_since_ != Time::max() && now - creating_since_ >= patience;
  if (!is_lost && !is_overdue) return nullptr;
  creation_abandoned_ = true;
  quiesced.swap(quiesced_);
  changed_.notify_all();
  try {
    if (is_lost)
      return error(CollectiveError::Kind::Backend,
                   fmt::format("the process has lost its GPUs while {} was created", devices_.devices.to_string()));
    return error(CollectiveError::Kind::Timeout,
                 fmt::format("{} the communicator {} after {} ms",
                             state_ == State::Creating ? "NCCL has not created" : "the driver has not opened",
                             devices_.devices.to_string(), patience.count()));
  } catch (...) {
    return std::current_exception();
  }
}

// Returns null if the oldest operation of the lane is not overdue.
std::exception_ptr NcclCommunicator::overdue(Lane& lane, Time now) noexcept try {
  const auto oldest = this->oldest(lane);
  if (!oldest) return nullptr;
  const auto arrivals = oldest->arrivals();
  const auto arrived = static_cast<std::size_t>(std::ranges::count(arrivals, true));
  {
    const std::lock_guard lock(mutex_);
    if (!lane.in_flight_.is_overdue(*oldest, arrived, timeout_, now)) return nullptr;
  }
  const NcclOperation& operation = *oldest->operation;
  const CollectiveRequest& request = operation.summary.first;
  std::string text =
      fmt::format("operation {}, {}, was submitted by all ranks, but has not {} after {} ms", operation.sequence.load(),
                  to_string(operation.summary), arrived < arrivals.size() ? "started" : "completed", timeout_.count());
  for (std::size_t rank = 0; rank < arrivals.size(); ++rank) {
    if (arrivals[rank]) continue;
    const DeviceId device = lane.ranks_[rank].device;
    text += fmt::format("; earlier work on {} has not completed, its device thread: {}", device.to_string(),
                        device_activity(detail::local_name(device, own_process())));
  }
  return error(CollectiveError::Kind::Timeout, text, request.caller.site);
} catch (...) {
  return std::current_exception();
}

// Returns null if NCCL reports no error.
std::exception_ptr NcclCommunicator::failure_in_nccl() noexcept {
  if (devices_.is_lost()) return nullptr;  // the GPU fault is reported instead
  for (const auto& comm : comms_) {
    const std::unique_lock in_use(comm->in_use, std::try_to_lock);
    if (!in_use || comm->native == nullptr) continue;
    NcclResult result = NcclResult::Success;
    const NcclResult asked = detail::nccl().async_error(comm->native, &result);
    if (asked != NcclResult::Success) result = asked;
    if (result == NcclResult::Success || result == NcclResult::InProgress) continue;
    try {
      detail::throw_nccl_error(result, comm->native, "async_error", std::source_location::current());
    } catch (...) {
      return std::current_exception();
    }
  }
  return nullptr;
}

}  // namespace cox
