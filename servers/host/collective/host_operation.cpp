#include <coxswain/servers/host/collective/host_operation.hpp>

#include <coxswain/collectives/watch/deadline_watch.hpp>
#include <coxswain/collectives/watch/device_activity.hpp>
#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>
#include <coxswain/runtime/communication/world_process.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <source_location>
#include <span>
#include <utility>

namespace cox::detail {
namespace {

// Bytes of each rank: up to most_at_once one thread copies them faster than it wakes the other threads; bytes_of_share
// are enough for a share of their own.
constexpr std::size_t most_at_once = std::size_t{16} << 10U;
constexpr std::size_t bytes_of_share = std::size_t{1} << 20U;

std::size_t bytes_of(const CollectiveRequests& requests) noexcept {
  std::size_t bytes = 0;
  for (const CollectiveRequest& request : requests) bytes += request.count * element_size(request.element_type);
  return bytes;
}

// One share for a small operation. Otherwise so many that all threads finish at about the same time.
std::size_t shares_of(const CollectiveRequests& requests, std::size_t ranks) noexcept {
  const std::size_t bytes = bytes_of(requests);
  return bytes <= most_at_once ? 1 : ranks * std::clamp<std::size_t>(bytes / bytes_of_share, 1, 8);
}

std::unique_ptr<RemoteRanks> make_remote(RemoteRanks::Owner& operation, const SharedSequence& sequence,
                                         const CollectiveRequests& requests, std::span<const DeviceId> places) {
  RankExchange* const exchange = RankExchange::of_process();
  if (exchange == nullptr)
    throw CollectiveError(CollectiveError::Kind::WorldGone, "this process has left its world", std::source_location());
  return std::make_unique<RemoteRanks>(operation, sequence, requests, places, own_process(), *exchange);
}

}  // namespace

HostOperation::HostOperation(CollectiveRequests requests, std::vector<DeviceId> devices_in_order,
                             std::chrono::milliseconds timeout, std::optional<SharedSequence> shared)
    : requests_(std::move(requests)),
      places_(std::move(devices_in_order)),
      timeout_(timeout),
      shares_(shares_of(requests_, places_.size())),
      remote_(shared ? make_remote(*this, *shared, requests_, places_) : nullptr),
      buffers_(requests_.size() * places_.size()),
      has_arrived_(places_.size()),
      missing_(arrivals()),
      own_missing_(remote_ ? remote_->own_ranks() : places_.size()) {}

std::shared_ptr<HostOperation> HostOperation::make(CollectiveRequests requests, std::vector<DeviceId> devices_in_order,
                                                   std::chrono::milliseconds timeout,
                                                   std::optional<SharedSequence> shared) {
  auto made =
      std::make_shared<HostOperation>(std::move(requests), std::move(devices_in_order), timeout, std::move(shared));
  DeadlineWatch<HostOperation>::of_process().add(*made, made->deadline());
  return made;
}

HostOperation::~HostOperation() { DeadlineWatch<HostOperation>::of_process().remove(*this); }

void HostOperation::open(std::uint64_t sequence) noexcept {
  {
    const std::lock_guard lock(mutex_);
    sequence_ = sequence;
  }
  if (remote_ != nullptr) remote_->expect(sequence, shared_from_this());
}

void HostOperation::set_buffers(std::size_t place, const std::vector<RankBuffers>& buffers) noexcept {
  for (std::size_t i = 0; i < buffers.size(); ++i) buffers_[i * ranks() + place] = buffers[i];
}

void HostOperation::arrive(std::size_t place, const std::exception_ptr& refusal) noexcept {
  if (remote_ == nullptr || !remote_->is_own(place))
    return count_arrival(place, refusal == nullptr ? nullptr : rank_failed(place, refusal));
  if (refusal != nullptr) remote_->set_refusal(place, refusal);
  bool last_own = false;
  {
    const std::lock_guard lock(mutex_);
    last_own = --own_missing_ == 0;
  }
  count_arrival(place, refusal == nullptr ? nullptr : rank_failed(place, refusal));
  if (last_own) remote_->send(buffers_);
}

bool HostOperation::has_arrived(std::size_t place) const noexcept {
  const std::lock_guard lock(mutex_);
  return has_arrived_[place];
}

// `place`: nothing for what is sent to other processes.
void HostOperation::count_arrival(std::optional<std::size_t> place, const std::exception_ptr& failed) noexcept {
  bool last = false;
  bool refused = false;
  {
    const std::lock_guard lock(mutex_);
    if (failure_ != nullptr) return;
    if (missing_ == arrivals()) deadline_ = std::chrono::steady_clock::now() + timeout_;
    if (place) has_arrived_[*place] = true;
    --missing_;
    last = missing_ == 0;
    if (failed != nullptr && (refusal_ == nullptr || *place < refused_place_)) {
      refusal_ = failed;
      refused_place_ = *place;
    }
    refused = refusal_ != nullptr;
  }
  if (last && refused) {
    done.advance_to(shares_);  // no share will be started
  } else if (last && shares_ == 1) {
    run_shares();
  }
  arrived.advance();
}

void HostOperation::run_shares() noexcept {
  if (failure_ != nullptr || refusal_ != nullptr) return;
  // Relaxed: the counter only assigns each share to one thread; `arrived` and `done` order the memory.
  for (std::size_t share = 0; (share = next_share_.fetch_add(1, std::memory_order_relaxed)) < shares_;) {
    for (std::size_t i = 0; i < requests_.size(); ++i)
      run_share(requests_[i], {&buffers_[i * ranks()], ranks()}, share, shares_);
    done.advance();
  }
}

bool HostOperation::wants_helpers(const CollectiveRequests& requests) noexcept {
  return bytes_of(requests) >= bytes_of_share;
}

HostOperation::Time HostOperation::deadline() const {
  const std::lock_guard lock(mutex_);
  if (missing_ == 0 || failure_ != nullptr) return Time::max();
  return missing_ == arrivals() ? std::chrono::steady_clock::now() + timeout_ : deadline_;
}

std::optional<HostOperation::Time> HostOperation::check_deadlines(Time now) noexcept {
  if (deadline() <= now) abort(overdue());
  return deadline();
}

void HostOperation::abort(const std::exception_ptr& why) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (missing_ == 0 || failure_ != nullptr) return;
    failure_ = why;
  }
  if (remote_ != nullptr) remote_->abort(why);
  arrived.advance_to(arrivals());
  done.advance_to(shares_);  // no share will be started
}

std::exception_ptr HostOperation::rank_failed(std::size_t place, const std::exception_ptr& refusal) const noexcept {
  try {
    return std::make_exception_ptr(
        CollectiveError(CollectiveError::Kind::RankFailed,
                        fmt::format("{} was not executed: {} could not take part: {}", to_string(requests_),
                                    places_[place].to_string(), describe_cause(refusal)),
                        requests_.front().caller.site, refusal));
  } catch (...) {
    return std::current_exception();  // out of memory for the error
  }
}

// Takes locks of the device threads.
std::exception_ptr HostOperation::overdue() const noexcept {
  try {
    return std::make_exception_ptr(
        CollectiveError(CollectiveError::Kind::Timeout, overdue_text(), requests_.front().caller.site));
  } catch (...) {
    return std::current_exception();  // out of memory for the error
  }
}

std::string HostOperation::overdue_text() const {
  std::vector<bool> came;
  std::uint64_t sequence = 0;
  {
    const std::lock_guard lock(mutex_);
    came = has_arrived_;
    sequence = sequence_;
  }
  std::string text = fmt::format("operation {}, {}, was submitted by all ranks, but has not started after {} ms",
                                 sequence, to_string(requests_), timeout_.count());
  for (std::size_t place = 0; place < came.size(); ++place)
    if (!came[place] && remote_ != nullptr && !remote_->is_own(place))
      text += fmt::format("; the input of {} has not arrived", places_[place].to_string());
    else if (!came[place])
      text += fmt::format("; earlier work on {} has not completed, its device thread: {}", places_[place].to_string(),
                          device_activity(local_name(places_[place], own_process())));
  return text;
}

}  // namespace cox::detail
