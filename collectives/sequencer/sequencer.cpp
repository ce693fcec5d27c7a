#include <coxswain/collectives/sequencer/sequencer.hpp>

#include <coxswain/collectives/sequencer/collective_submission.hpp>
#include <coxswain/collectives/sequencer/communicator_sequence.hpp>
#include <coxswain/collectives/sequencer/most_asked.hpp>
#include <coxswain/collectives/sequencer/open_communicators.hpp>
#include <coxswain/collectives/sequencer/overdue.hpp>
#include <coxswain/collectives/sequencer/stalled_operation.hpp>
#include <coxswain/collectives/sequencer/wait_cycle.hpp>
#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>
#include <coxswain/runtime/communication/world_process.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <new>
#include <source_location>
#include <utility>

namespace cox {

using detail::CommunicatorSequence;
using Kind = CollectiveError::Kind;
using Releases = detail::OpenCommunicators::Releases;

namespace {

constexpr std::chrono::seconds recheck_interval_when_frozen{1};
constexpr std::chrono::seconds recheck_interval_when_held{1};

// Returns std::bad_alloc if there is no memory for the error, because the ranks must be refused in any case.
template <class Make>
std::exception_ptr error(const Make& make) noexcept {
  try {
    return std::make_exception_ptr(make());
  } catch (...) {
    return std::current_exception();
  }
}

CollectiveError closed(CommunicatorNumber communicator) {
  return {Kind::Aborted, fmt::format("communicator {} is closed", static_cast<std::uint64_t>(communicator)),
          std::source_location()};
}

std::exception_ptr aborted(const CommunicatorSequence& among, const std::exception_ptr& cause) noexcept {
  return error([&] {
    const std::string why = cause ? describe_cause(cause) : "no cause was given";
    return CollectiveError(Kind::Aborted, among.name() + " was aborted: " + why, std::source_location(), cause);
  });
}

}  // namespace

Sequencer::Sequencer(SequencerOptions options)
    : options_([&] {
        if (!options.now) options.now = [] { return std::chrono::steady_clock::now(); };
        if (!options.awaited_devices || !options.explain) options.explain_after = {};
        return std::move(options);
      }()),
      communicators_(std::make_unique<detail::OpenCommunicators>()),
      watchdog_([this](Time now) { return look(now); }, options_.now) {}

Sequencer::~Sequencer() {
  watchdog_.stop();
  is_ending_ = true;
  lose_world(
      error([] { return CollectiveError(Kind::WorldGone, "the process has left its world", std::source_location()); }));
  while (const CommunicatorSequence* open = communicators_->any_open()) close(open->number());
}

CommunicatorNumber Sequencer::open(CommunicationId devices, std::chrono::milliseconds timeout) {
  const std::lock_guard lock(mutex_);
  std::optional<SharedSequence> shared;
  if (devices.spans_processes()) shared = next_epoch(devices);
  return insert(std::move(devices), timeout, std::move(shared));
}

CommunicatorNumber Sequencer::open_transfers(CommunicatorNumber among, DeviceId from, DeviceId to,
                                             std::chrono::milliseconds timeout) {
  const std::lock_guard lock(mutex_);
  CommunicationId devices(std::array{from, to});
  if (!devices.spans_processes()) return insert(std::move(devices), timeout, std::nullopt);
  const CommunicatorSequence* const all = communicators_->find(among);
  if (all == nullptr) throw closed(among);
  const auto rank_of = [&](DeviceId device) { return static_cast<std::uint16_t>(all->devices().rank_of(device)); };
  return open_part(among, std::move(devices), {.from = rank_of(from), .to = rank_of(to)}, timeout);
}

CommunicatorNumber Sequencer::open_creation(CommunicatorNumber among, std::chrono::milliseconds timeout) {
  const std::lock_guard lock(mutex_);
  const CommunicatorSequence* const all = communicators_->find(among);
  if (all == nullptr) throw closed(among);
  return open_part(among, all->devices(), TransferRanks::of_creation(), timeout);
}

// Under the lock. Opens another sequence of a communicator of several processes.
CommunicatorNumber Sequencer::open_part(CommunicatorNumber among, CommunicationId devices, TransferRanks part,
                                        std::chrono::milliseconds timeout) {
  const CommunicatorSequence* const all = communicators_->find(among);
  if (all == nullptr || all->shared() == nullptr) throw closed(among);
  if (world_lost_) std::rethrow_exception(world_lost_);
  const CommunicatorNumber number =
      insert(std::move(devices), timeout, SharedSequence{all->shared()->communicator, part});
  if (all->error()) communicators_->find(number)->refuse_from(1, all->error());
  return number;
}

// Under the lock.
CommunicatorNumber Sequencer::insert(CommunicationId devices, std::chrono::milliseconds timeout,
                                     std::optional<SharedSequence> shared) {
  const CommunicatorNumber number{++opened_};
  for (const DeviceId device : devices.devices()) queues_.try_emplace(detail::local_name(device, process_));
  auto recorder =
      std::make_shared<FlightRecorder>(std::to_string(opened_), devices, options_.recorded_operations, timeout);
  const std::size_t max_ahead =
      shared ? std::min(options_.max_ahead, detail::most_asked(leader_max_ahead_)) : options_.max_ahead;
  communicators_->insert(std::make_unique<CommunicatorSequence>(number, std::move(devices), timeout, max_ahead,
                                                                std::move(recorder), process_, std::move(shared)));
  CommunicatorSequence& inserted = *communicators_->find(number);
  if (const SharedSequence* const its = inserted.shared()) {
    leader_->open(number, *its, timeout);
    const Epochs& epochs = epochs_[its->communicator.devices];
    if (its->communicator.epoch <= epochs.broken) inserted.refuse_from(1, epochs.why);
  }
  return number;
}

// Under the lock. A process that never had a broken epoch open gets that epoch first, so that its ranks get the error
// that the others got, and its operations are not taken for those of the next epoch.
SharedSequence Sequencer::next_epoch(const CommunicationId& devices) {
  if (world_lost_) std::rethrow_exception(world_lost_);
  if (leader_ == nullptr)
    throw CollectiveError(
        Kind::Validation,
        "communicator " + devices.to_string() + " has devices of other processes, but this process has joined no world",
        std::source_location());
  if (std::ranges::none_of(devices.devices(), [this](DeviceId device) { return device.process == process_; }))
    throw CollectiveError(Kind::Validation, "communicator " + devices.to_string() + " has no device of this process",
                          std::source_location());
  for (const DeviceId device : devices.devices())
    if (!std::ranges::binary_search(world_devices_, device))
      throw CollectiveError(
          Kind::Validation,
          "communicator " + devices.to_string() + " refused: the world has no device " + device.to_string(),
          std::source_location());
  Epochs& epochs = epochs_[devices];
  const bool first = !std::exchange(epochs.is_opened, true);
  const std::uint64_t epoch = first && epochs.broken != 0 ? epochs.broken : epochs.broken + 1;
  return {{devices, epoch}, std::nullopt};
}

void Sequencer::join_world(std::uint16_t process, std::vector<DeviceId> devices, WorldOrder& order,
                           std::size_t max_ahead) {
  const std::lock_guard lock(mutex_);
  std::ranges::sort(devices);
  world_devices_ = std::move(devices);
  leader_max_ahead_ = max_ahead;
  process_ = process;
  leader_ = &order;
  world_lost_ = nullptr;
  communicators_->ask_leader(&order);
}

std::optional<SharedSequence> Sequencer::shared(CommunicatorNumber communicator) const {
  const std::lock_guard lock(mutex_);
  const CommunicatorSequence* among = communicators_->find(communicator);
  if (among == nullptr) throw closed(communicator);
  return among->shared() == nullptr ? std::nullopt : std::optional(*among->shared());
}

bool Sequencer::release(const CollectiveId& operation) {
  std::unique_ptr<CommunicatorSequence> removed;
  std::unique_lock lock(mutex_);
  if (frozen_ != 0) {
    const CommunicatorSequence* const among = communicators_->find(operation.communicator);
    if (among == nullptr || !among->is_asked(operation.sequence)) return world_lost_ != nullptr;
    kept_releases_.push_back(operation);
    return true;
  }
  const bool right = release_now(operation, removed);
  drain_queues(lock);
  return right || world_lost_ != nullptr;  // lost: then it has been refused meanwhile
}

// Under the lock; drain_queues() must follow. Returns false if the operation was not asked for, or is refused already.
bool Sequencer::release_now(const CollectiveId& operation, std::unique_ptr<CommunicatorSequence>& removed) noexcept {
  CommunicatorSequence* const among = communicators_->find(operation.communicator);
  if (among == nullptr || !among->note_released(operation.sequence)) return false;
  if (among->shared()->transfer == TransferRanks::of_creation()) freeze_clock();
  CollectiveSubmissions grants;
  communicators_->resolve_ready(*among, grants, Releases::All);
  remove_if_answered(*among, removed);
  enqueue(grants);
  return true;
}

void Sequencer::refuse(const CollectiveId& operation, const std::exception_ptr& why) {
  std::unique_ptr<CommunicatorSequence> removed;
  change(operation.communicator, [&](CommunicatorSequence& among, CollectiveSubmissions& grants) {
    try {
      among.refuse(operation.sequence, why);
    } catch (const std::bad_alloc&) {  // the operation cannot be remembered, so all later ones are refused
      end_from(among, among.oldest_sequence(), std::current_exception());
    }
    resolve(among, grants);
    remove_if_answered(among, removed);
  });
}

void Sequencer::end(const SharedCommunicator& communicator, const std::vector<SharedSequenceEnd>& ends,
                    const std::exception_ptr& why) {
  std::vector<CommunicatorNumber> numbers;
  {
    const std::lock_guard lock(mutex_);
    numbers = communicators_->find_shared(communicator);
    note_broken_epoch(communicator, why);
  }
  for (const CommunicatorNumber number : numbers) {
    std::unique_ptr<CommunicatorSequence> removed;
    change(number, [&](CommunicatorSequence& among, CollectiveSubmissions& grants) {
      notify_ranks(among);
      const auto its = std::ranges::find(ends, among.shared()->transfer, &SharedSequenceEnd::transfer);
      among.refuse_from(its == ends.end() ? among.oldest_sequence() : its->from, why);
      resolve(among, grants);
      remove_if_answered(among, removed);
    });
  }
}

// Allocates nothing, because the ranks must be refused in any case.
void Sequencer::lose_world(const std::exception_ptr& why) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (!world_lost_) world_lost_ = why;
    communicators_->ask_leader(nullptr);
  }
  CommunicatorNumber last{};
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      const CommunicatorSequence* const next = communicators_->next_shared(last);
      if (next == nullptr) return;
      last = next->number();
    }
    std::unique_ptr<CommunicatorSequence> removed;
    change(last, [&](CommunicatorSequence& among, CollectiveSubmissions& grants) {
      notify_ranks(among);
      among.refuse_from(among.oldest_sequence(), why);
      resolve(among, grants);
      remove_if_answered(among, removed);
    });
  }
}

void Sequencer::note_completed(CommunicatorNumber communicator, std::size_t rank, std::uint64_t sequence) noexcept {
  const std::lock_guard lock(mutex_);
  CommunicatorSequence* const among = communicators_->find(communicator);
  if (among == nullptr || among->shared() == nullptr || world_lost_) return;
  const std::uint64_t step = std::max<std::uint64_t>(leader_max_ahead_ / 4, 1);
  among->note_completed(rank, sequence);
  if (const auto all = among->take_completed(step)) leader_->completed({communicator, *all});
}

void Sequencer::report_completed() noexcept {
  const std::lock_guard lock(mutex_);
  if (world_lost_) return;
  communicators_->for_each_shared([this](CommunicatorSequence& among) {
    if (const auto all = among.take_completed(1)) leader_->completed({among.number(), *all});
  });
}

bool Sequencer::awaits_leader() const noexcept {
  const std::lock_guard lock(mutex_);
  bool awaits = false;
  communicators_->for_each_shared([&](const CommunicatorSequence& among) {
    awaits = awaits || (among.oldest() != nullptr && among.is_asked(among.oldest_sequence()));
  });
  return awaits && !world_lost_;
}

std::string Sequencer::explain_missing(const SharedSequence& sequence, std::uint64_t operation) const {
  std::string text;
  std::vector<detail::StalledOperation::Missing> missing;
  {
    const std::lock_guard lock(mutex_);
    const CommunicatorSequence* among = nullptr;
    for (const CommunicatorNumber number : communicators_->find_shared(sequence.communicator))
      if (CommunicatorSequence* const open = communicators_->find(number);
          open->shared()->transfer == sequence.transfer)
        among = open;
    if (among == nullptr) return "it has not used this communicator";
    if (among->error()) return "its communicator is broken: " + describe_cause(among->error());
    if (among->oldest() != nullptr && among->oldest_sequence() <= operation && !among->is_asked(operation)) {
      detail::StalledOperation stall =
          detail::find_stalled_operation(*communicators_, *among, std::chrono::milliseconds(0));
      if (among->complete(*among->oldest())) text = std::move(stall.text);
    }
    missing = detail::missing_ranks(*among, operation);
  }
  for (const detail::StalledOperation::Missing& each : missing) {
    text += (text.empty() ? "" : "; ") + each.device.to_string() + " is missing, " + each.last;
    const detail::Activities activities =
        detail::activities_of({.text = {}, .missing = {each}}, options_.device_activity);
    if (!activities.empty()) text += activities.begin()->second;
  }
  return text.empty() ? "it has submitted the operation, which has not completed there" : text;
}

std::vector<SharedCommunicator> Sequencer::broken_epochs(std::uint16_t process) const {
  std::vector<SharedCommunicator> found;
  const std::lock_guard lock(mutex_);
  for (const auto& [devices, epochs] : epochs_)
    if (epochs.broken != 0 &&
        std::ranges::any_of(devices.devices(), [process](DeviceId device) { return device.process == process; }))
      found.push_back({.devices = devices, .epoch = epochs.broken});
  return found;
}

void Sequencer::skip_broken_epochs() {
  const std::lock_guard lock(mutex_);
  for (auto& [devices, epochs] : epochs_) epochs.is_opened = true;
}

// Under the lock.
void Sequencer::note_broken_epoch(const SharedCommunicator& communicator, const std::exception_ptr& why) {
  Epochs& epochs = epochs_[communicator.devices];
  if (communicator.epoch <= epochs.broken) return;
  epochs.broken = communicator.epoch;
  epochs.why = why;
}

// Under the lock. Refuses the operations from this one on. Of operations that the leader was asked for, it decides from
// which one on: other processes may have been told already that they are released.
void Sequencer::end_from(CommunicatorSequence& among, std::uint64_t sequence,
                         const std::exception_ptr& error) noexcept {
  notify_ranks(among);
  if (among.shared() == nullptr || world_lost_) return among.refuse_from(sequence, error);
  if (sequence < among.error_from()) {
    leader_->end({among.number(), sequence}, error);
    note_broken_epoch(among.shared()->communicator, error);  // the next one can be opened before the leader answers
  }
  among.refuse_from(std::max(sequence, among.next_to_ask()), error);
}

// Under the lock. Operations no longer wait for those of a broken communicator, even if a rank has not submitted these
// yet. The launch threads of its devices are notified, so that they submit them at once, and they are refused.
void Sequencer::notify_ranks(const CommunicatorSequence& among) noexcept {
  if (is_ending_) return;  // no rank submits any more
  for (auto& [device, queue] : queues_) {
    if (queue.notify == nullptr || queue.notified || !among.rank_of_own(device)) continue;
    queue.must_notify = true;
    filled_.splice(filled_.end(), queue.list_node);
  }
}

// Under the lock. Removes a sequence that was closed while it waited for the leader's answers.
void Sequencer::remove_if_answered(CommunicatorSequence& among,
                                   std::unique_ptr<CommunicatorSequence>& removed) noexcept {
  if (!among.is_closed || among.oldest() != nullptr) return;
  if (among.shared() != nullptr && !world_lost_) leader_->close(among.number());
  removed = communicators_->extract(among.number());
}

template <class Change>
bool Sequencer::change(CommunicatorNumber communicator, const Change& change) {
  std::unique_lock lock(mutex_);
  CommunicatorSequence* among = communicators_->find(communicator);
  if (among == nullptr) return false;
  CollectiveSubmissions grants;
  change(*among, grants);
  enqueue(grants);
  drain_queues(lock);
  return true;
}

std::uint64_t Sequencer::submit(CommunicatorNumber communicator, std::size_t rank, CollectiveSubmission submission) {
  CollectiveSubmissions submissions;
  submissions.push_back(std::move(submission));
  return submit(communicator, rank, submissions, 1);
}

std::uint64_t Sequencer::submit(CommunicatorNumber communicator, std::size_t rank, CollectiveSubmissions& submissions,
                                std::size_t count) {
  for (std::size_t prepared = 0; CollectiveSubmission & each : submissions) {
    if (prepared++ == count) break;
    if (each.requests.empty())
      throw CollectiveError(Kind::Validation, "a submission contains no operation", std::source_location());
    each.communicator = communicator;
    each.rank = rank;
    each.why = each.failure ? describe_cause(each.failure) : std::string();
  }
  std::uint64_t first = 0;
  const bool open = change(communicator, [&](CommunicatorSequence& among, CollectiveSubmissions& grants) {
    if (among.is_closed) throw closed(communicator);
    // One by one, each message to the leader would take longer than its operation does here.
    const detail::AskBatch batch(count > 1 && among.shared() != nullptr && !world_lost_ ? leader_ : nullptr);
    for (; count != 0 && !submissions.empty(); --count) {
      try {
        accept(among, submissions, grants);
      } catch (...) {
        if (first == 0) throw;
        return;  // the caller gets the error when it submits the rest again
      }
      if (first == 0) first = among.next(rank) - 1;
    }
  });
  if (!open) throw closed(communicator);
  return first;
}

// Under the lock. Accepts the first submission and removes it from the list. If it throws, nothing has changed.
void Sequencer::accept(CommunicatorSequence& among, CollectiveSubmissions& submissions, CollectiveSubmissions& grants) {
  CollectiveSubmission& first = submissions.front();
  among.number(first);
  const Time now = options_.now();
  const std::exception_ptr refusal = refusal_for(among, first);
  if (among.begins_operation(first.rank)) {
    watchdog_.watch(now + first_look(among.timeout()));
    has_begun_ = true;
  }
  among.add(submissions, refusal, now, grants);
  communicators_->record_dependencies(first);
  communicators_->resolve_ready(among, grants, frozen_ == 0 ? Releases::All : Releases::Changed);
}

// Under the lock, after a change that is not a submission. A rank that submits has entered the launch gate, so what it
// releases is launched before any call that may wait for kernels (T1). Of other changes nothing is known there, so they
// release nothing while the sequencer is frozen.
void Sequencer::resolve(CommunicatorSequence& among, CollectiveSubmissions& grants) noexcept {
  communicators_->resolve_ready(among, grants, frozen_ == 0 ? Releases::All : Releases::None);
}

std::exception_ptr Sequencer::refusal_for(const CommunicatorSequence& among,
                                          const CollectiveSubmission& submission) const {
  if (const std::exception_ptr own = among.refusal_for(submission)) return own;
  if (submission.dependencies.empty()) return nullptr;
  const std::optional<std::string> ring = detail::find_wait_cycle(*communicators_, submission);
  if (!ring) return nullptr;
  return std::make_exception_ptr(CollectiveError(Kind::WouldDeadlock, *ring, submission.requests.front().caller.site));
}

// Under the lock, for all devices at once: this makes the order of operations the same on all devices.
void Sequencer::enqueue(CollectiveSubmissions& grants) noexcept {
  while (!grants.empty()) {
    LaunchQueue& queue = queues_.find(grants.front().device)->second;
    queue.grants.splice(queue.grants.end(), grants, grants.begin());
    if (!queue.notified) filled_.splice(filled_.end(), queue.list_node);
  }
}

// Called with the lock held. Releases it during the calls of launches and of notify.
void Sequencer::drain_queues(std::unique_lock<detail::AdaptiveMutex>& lock) noexcept {
  while (!filled_.empty()) {
    std::list<LaunchQueue*> ticket;
    ticket.splice(ticket.end(), filled_, filled_.begin());
    LaunchQueue& queue = *ticket.front();
    CollectiveSubmissions grants = take_for_any_thread(queue);
    ++queue.passing;
    if (!grants.empty()) {
      lock.unlock();
      for (; !grants.empty(); grants.pop_front()) call(grants.front());
      lock.lock();
      std::list<LaunchQueue*>& next = queue.grants.empty() && !queue.must_notify ? queue.list_node : filled_;
      next.splice(next.end(), ticket);
    } else {
      queue.list_node.splice(queue.list_node.end(), ticket);
      queue.must_notify = false;
      if (const auto notify = queue.notify) {
        queue.notified = true;
        lock.unlock();
        (*notify)();
        lock.lock();
      }
    }
    --queue.passing;
    if (frozen_ != 0 || removing_ != 0) passed_.notify_all();
  }
}

// Under the lock. Whether there are launches of devices with a launch thread of which that thread does not know yet.
// They may be in a queue that another thread drains than the one that has filled it.
bool Sequencer::is_passing() const noexcept {
  return std::ranges::any_of(queues_, [](const auto& entry) {
    const LaunchQueue& queue = entry.second;
    return queue.notify != nullptr && (queue.passing != 0 || (!queue.notified && !queue.grants.empty()));
  });
}

// Takes the grants at the front of the queue that any thread may call.
CollectiveSubmissions Sequencer::take_for_any_thread(LaunchQueue& queue) noexcept {
  CollectiveSubmissions grants;
  const auto is_for_launch_thread = [&](const CollectiveSubmission& submission) {
    return queue.notify != nullptr && submission.on_launch_thread;
  };
  grants.splice(grants.end(), queue.grants, queue.grants.begin(),
                std::ranges::find_if(queue.grants, is_for_launch_thread));
  return grants;
}

void Sequencer::drain_launches(DeviceId device) noexcept {
  std::unique_lock lock(mutex_);
  const auto found = queues_.find(device);
  if (found == queues_.end()) return;
  LaunchQueue& queue = found->second;
  while (queue.notified) {
    CollectiveSubmissions grants = std::exchange(queue.grants, {});
    if (grants.empty()) {
      queue.notified = false;
      return;
    }
    lock.unlock();
    for (; !grants.empty(); grants.pop_front()) call(grants.front());
    lock.lock();
  }
}

void Sequencer::set_launch_thread(DeviceId device, std::function<void()> notify) {
  std::shared_ptr<const std::function<void()>> shared;
  if (notify) shared = std::make_shared<const std::function<void()>>(std::move(notify));
  std::unique_lock lock(mutex_);
  LaunchQueue& queue = queues_.try_emplace(device).first->second;
  queue.notify.swap(shared);  // the former function is destroyed with no lock held
  if (shared != nullptr) {
    ++removing_;
    passed_.wait(lock, [&] { return queue.passing == 0; });  // it may be in the middle of a call
    --removing_;
  }
  if (queue.notify == nullptr && std::exchange(queue.notified, false) && !queue.grants.empty())
    filled_.splice(filled_.end(), queue.list_node);
  drain_queues(lock);
}

void Sequencer::call(CollectiveSubmission& submission) noexcept {
  const std::uint64_t sequence = submission.grant.sequence;
  try {
    submission.launch->take_grant(std::move(submission.grant));
  } catch (...) {
    const std::exception_ptr cause = std::current_exception();
    change(submission.communicator, [&](CommunicatorSequence& among, CollectiveSubmissions&) {
      among.recorder()->failed(sequence, submission.rank, cause);
    });
    abort(submission.communicator, cause);
  }
}

void Sequencer::abort(CommunicatorNumber communicator, const std::exception_ptr& cause) {
  change(communicator, [&](CommunicatorSequence& among, CollectiveSubmissions& grants) {
    end_from(among, among.oldest_sequence(), aborted(among, cause));
    resolve(among, grants);
  });
}

void Sequencer::leave(DeviceId device) {
  for (const CommunicatorNumber number : communicators_with(device))
    change(number, [&](CommunicatorSequence& among, CollectiveSubmissions& grants) {
      const std::uint64_t next = among.next(*among.rank_of_own(device));
      end_from(among, next, error([&] {
                 return CollectiveError(Kind::Aborted,
                                        fmt::format("{} accepts no submission after operation {}: {} was shut down",
                                                    among.name(), next - 1, device.to_string()),
                                        std::source_location());
               }));
      resolve(among, grants);
    });
}

std::vector<CommunicatorNumber> Sequencer::communicators_with(DeviceId device) const {
  const std::lock_guard lock(mutex_);
  return communicators_->find_with_device(device);
}

void Sequencer::close(CommunicatorNumber communicator) {
  const std::exception_ptr cause = error([&] { return closed(communicator); });
  std::unique_ptr<CommunicatorSequence> extracted;  // destroyed with no lock held
  change(communicator, [&](CommunicatorSequence& among, CollectiveSubmissions& grants) {
    end_from(among, among.oldest_sequence(), aborted(among, cause));
    resolve(among, grants);
    among.is_closed = true;
    remove_if_answered(among, extracted);
  });
  watchdog_.recheck();  // ends the watchdog thread if no deadline is left
}

std::exception_ptr Sequencer::broken(CommunicatorNumber communicator) const {
  const std::lock_guard lock(mutex_);
  const CommunicatorSequence* among = communicators_->find(communicator);
  return among != nullptr ? among->error() : error([&] { return closed(communicator); });
}

bool Sequencer::refuses_all_of(CommunicatorNumber communicator, std::size_t rank) const {
  const std::lock_guard lock(mutex_);
  const CommunicatorSequence* among = communicators_->find(communicator);
  return among == nullptr || among->refuses_all_of(rank);
}

void Sequencer::freeze() noexcept {
  std::unique_lock lock(mutex_);
  freeze_clock();
  passed_.wait(lock, [this] { return !is_passing(); });
}

void Sequencer::wait_for_notifications() noexcept {
  std::unique_lock lock(mutex_);
  passed_.wait(lock, [this] { return !is_passing(); });
}

// Under the lock.
void Sequencer::freeze_clock() noexcept {
  if (frozen_++ == 0) frozen_since_ = options_.now();
}

// Releases the operations that have become free meanwhile. The kept releases follow in their order, until one of them
// freezes again: that of a creation.
void Sequencer::thaw() noexcept {
  for (;;) {
    std::unique_ptr<CommunicatorSequence> removed;
    std::unique_lock lock(mutex_);
    if (--frozen_ != 0) return;
    communicators_->postpone(options_.now() - frozen_since_);
    CollectiveSubmissions grants;
    communicators_->resolve_held(grants);
    if (grants.empty() && kept_releases_.empty()) break;
    enqueue(grants);
    freeze_clock();  // so that the leader's next release is kept, too, until these have been passed on
    if (!kept_releases_.empty()) {
      const CollectiveId next = kept_releases_.front();
      kept_releases_.pop_front();
      static_cast<void>(release_now(next, removed));  // false: it has been refused meanwhile
    }
    drain_queues(lock);
  }
  watchdog_.recheck();
}

// With explain_after, checks are frequent. The watchdog thread then stays as long as new operations begin, because
// starting a thread takes longer than an operation.
std::optional<Sequencer::Time> Sequencer::look(Time now) {
  const std::optional<Time> next = expire(now);
  if (next || options_.explain_after.count() == 0) return next;
  const std::lock_guard lock(mutex_);
  return std::exchange(has_begun_, false) ? std::optional(now + options_.explain_after / 4) : std::nullopt;
}

std::optional<Sequencer::Time> Sequencer::expire(Time now) {
  {
    const std::lock_guard lock(mutex_);
    if (frozen_ != 0) return now + recheck_interval_when_frozen;  // thaw() triggers an earlier check
  }
  const auto overdue = [&] {
    const std::lock_guard lock(mutex_);
    return frozen_ == 0 ? communicators_->overdue(now) : std::nullopt;
  };
  // Terminates: time_out() resolves the operation, unless another thread has resolved it or frozen the sequencer since.
  while (const std::optional<CollectiveId> next = overdue()) time_out(*next);
  const std::optional<Time> explanation = explain_waits(now);
  const std::lock_guard lock(mutex_);
  std::optional<Time> next = communicators_->next_deadline();
  if (next && *next <= now) next = now + recheck_interval_when_held;  // it waits for one that the leader will time out
  if (next && explanation) next = std::min(*next, *explanation);
  return next;
}

// Returns when to check again; nothing if there is nothing to explain.
std::optional<Sequencer::Time> Sequencer::explain_waits(Time now) noexcept {
  if (options_.explain_after.count() == 0) return std::nullopt;
  try {
    const std::vector<DeviceId> awaited = options_.awaited_devices(now, options_.explain_after / 2);
    std::vector<std::string> texts;
    const std::optional<Time> next = find_unexplained(now, awaited, texts);
    for (const std::string& text : texts) options_.explain(text);
    return next;
  } catch (...) {  // no memory for the text: the next check tries again
    return now + options_.explain_after / 4;
  }
}

std::optional<Sequencer::Time> Sequencer::find_unexplained(Time now, std::span<const DeviceId> awaited,
                                                           std::vector<std::string>& texts) {
  std::optional<Time> next;
  const std::lock_guard lock(mutex_);
  communicators_->for_each_waiting([&](CommunicatorSequence& among) {
    const detail::WaitingOperation& oldest = *among.oldest();
    if (oldest.is_explained || oldest.grant.refusal != nullptr) return;
    const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(now - among.oldest_since());
    const auto arrived = std::ranges::find_if(oldest.arrived, [&](const CollectiveSubmission& submission) {
      return waited >= options_.explain_after && std::ranges::find(awaited, submission.device) != awaited.end();
    });
    if (arrived == oldest.arrived.end()) {
      next = now + options_.explain_after / 4;
      return;
    }
    detail::StalledOperation stall = detail::find_stalled_operation(*communicators_, among, waited);
    stall.text = "a thread waits for " + arrived->device.to_string() + ", but " + stall.text;
    for (const detail::StalledOperation::Missing& missing : stall.missing)
      stall.text += "; " + missing.device.to_string() + " is missing, " + missing.last;
    texts.push_back(std::move(stall.text) +
                    "; a thread that drives several ranks must submit for all of them before it waits for one");
    among.note_explained();
  });
  return next;
}

void Sequencer::time_out(const CollectiveId& overdue) {
  // User code, called with no lock held. So the operation may have been resolved when it returns.
  const auto activities = detail::activities_of(stall(overdue.communicator), options_.device_activity);
  change(overdue.communicator, [&](CommunicatorSequence& among, CollectiveSubmissions& grants) {
    if (frozen_ != 0 || among.oldest() == nullptr || among.oldest_sequence() != overdue.sequence) return;
    end_from(among, among.oldest_sequence(),
             error([&] { return detail::overdue_error(*communicators_, among, activities); }));
    resolve(among, grants);
  });
}

// Empty if there is no memory for it, or no operation is stalled any more.
detail::StalledOperation Sequencer::stall(CommunicatorNumber communicator) const noexcept {
  try {
    const std::lock_guard lock(mutex_);
    const CommunicatorSequence* among = communicators_->find(communicator);
    if (among != nullptr && among->oldest() != nullptr)
      return detail::find_stalled_operation(*communicators_, *among, among->timeout());
  } catch (...) {
    return {};
  }
  return {};
}

std::shared_ptr<FlightRecorder> Sequencer::recorder(CommunicatorNumber communicator) const {
  const std::lock_guard lock(mutex_);
  const CommunicatorSequence* among = communicators_->find(communicator);
  if (among == nullptr) throw closed(communicator);
  return among->recorder();
}

}  // namespace cox
