#include <coxswain/collectives/world/data_exchange.hpp>

#include <coxswain/collectives/link/control_link.hpp>
#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>

#include <algorithm>
#include <deque>
#include <new>
#include <source_location>
#include <tuple>
#include <utility>

namespace cox::detail::world {
namespace {

constexpr std::size_t most_aborted = 4096;  // operations that others have aborted before they were released here

void remove(std::vector<std::uint16_t>& from, std::uint16_t process) noexcept { std::erase(from, process); }
bool contains(const std::vector<std::uint16_t>& processes, std::uint16_t process) noexcept {
  return std::ranges::find(processes, process) != processes.end();
}

// Of one rank without the data: what the other process must know to receive it.
InputOfRank input_of(const RankPart& part) {
  InputOfRank input{.place = part.place, .refusal = part.refusal, .bytes = {}};
  if (part.refusal.empty())
    for (const auto& data : part.data) input.bytes.push_back(data.size());
  return input;
}

std::exception_ptr aborted_error(const AbortedOperation& message, const std::string& process) noexcept {
  try {
    return std::make_exception_ptr(
        CollectiveError(message.kind, process + " has aborted the operation: " + message.text, std::source_location()));
  } catch (...) {
    return std::current_exception();
  }
}

}  // namespace

OperationOfAll name_of(const SharedOperation& operation) {
  const auto devices = operation.sequence.communicator.devices.devices();
  return {.devices = {devices.begin(), devices.end()},
          .epoch = operation.sequence.communicator.epoch,
          .direction = direction_of(operation.sequence),
          .operation = operation.operation};
}

bool DataExchange::ByName::operator()(const OperationOfAll& a, const OperationOfAll& b) const noexcept {
  return std::tie(a.operation, a.epoch, a.direction, a.devices) <
         std::tie(b.operation, b.epoch, b.direction, b.devices);
}

void DataExchange::expect(const SharedOperation& shared, const std::vector<std::uint16_t>& from,
                          const std::shared_ptr<Operation>& operation) {
  const OperationOfAll name = world::name_of(shared);
  std::exception_ptr failed;
  std::vector<std::shared_ptr<DataLink>> waiting;
  {
    const std::lock_guard lock(mutex_);
    note_expected(name);
    std::vector<std::uint16_t> processes;
    for (const std::uint16_t process : from) {
      processes.push_back(static_cast<std::uint16_t>(process - 1));
      if (gone_[processes.back()] && !failed) failed = gone_[processes.back()];
      if (links_[processes.back()]) waiting.push_back(links_[processes.back()]);
    }
    if (const auto ended = ended_epochs_.find(name.devices); ended != ended_epochs_.end() && !failed)
      if (name.epoch <= ended->second.epoch) failed = ended->second.why;
    if (const auto given = aborted_.extract(name); given && !failed)
      failed = aborted_error(given.mapped().first, name_of_(given.mapped().second));
    active_.emplace(name, Active{.operation = operation,
                                 .key = ++last_key_,
                                 .is_withdrawn = std::make_shared<std::atomic<bool>>(false),
                                 .processes = processes,
                                 .awaited = processes,
                                 .unsent = processes});
  }
  if (failed) return fail(name, failed);
  for (const auto& link : waiting) link->resume();
}

void DataExchange::send(const SharedOperation& shared, std::vector<Parcel> parcels) noexcept {
  OperationOfAll name;
  try {
    name = world::name_of(shared);
    std::uint64_t key = 0;
    std::shared_ptr<std::atomic<bool>> is_withdrawn;
    {
      const std::lock_guard lock(mutex_);
      const auto found = active_.find(name);
      if (found == active_.end()) return;  // aborted
      found->second.has_sent = true;
      key = found->second.key;
      is_withdrawn = found->second.is_withdrawn;
    }
    for (Parcel& parcel : parcels) {
      const auto process = static_cast<std::uint16_t>(parcel.process - 1);
      Inputs inputs{.of = name, .ranks = {}};
      SendQueue::Item item{
          .head = {}, .data = {}, .key = key, .is_withdrawn = is_withdrawn, .sent = [this, name, process] {
            note_sent(name, process);
          }};
      for (const RankPart& part : parcel.parts) {
        inputs.ranks.push_back(input_of(part));
        if (part.refusal.empty())
          for (const auto& data : part.data)
            if (!data.empty()) item.data.push_back(data);
      }
      item.head = frame_of(inputs);
      const auto to = link(process);
      if (to == nullptr || !to->queue().push(std::move(item))) {
        const std::lock_guard lock(mutex_);
        if (gone_[process]) std::rethrow_exception(gone_[process]);
        if (const auto found = active_.find(name); found != active_.end())
          found->second.refused.push_back(process);  // lose() will be called
      }
    }
  } catch (...) {
    fail(name, std::current_exception());
  }
}

void DataExchange::abort(const SharedOperation& shared, const std::exception_ptr& why) noexcept {
  try {
    const OperationOfAll name = world::name_of(shared);
    Active ended{};
    std::vector<std::shared_ptr<DataLink>> links;
    {
      const std::lock_guard lock(mutex_);
      note_expected(name);
      const auto found = active_.find(name);
      if (found == active_.end()) return;
      ended = std::move(found->second);
      active_.erase(found);
      for (const std::uint16_t process : ended.processes)
        if (links_[process]) links.push_back(links_[process]);
    }
    *ended.is_withdrawn = true;
    for (const auto& link : links) link->queue().withdraw(ended.key);
    // This process has lost the world, and closes its links. The others have not lost it, or learn that themselves.
    if (kind_of(why) == CollectiveError::Kind::WorldGone) return;
    for (const auto& link : links) {
      static_cast<void>(link->queue().push(
          {.head = frame_of(AbortedOperation{.of = name, .kind = kind_of(why), .text = describe_cause(why)})}));
      link->resume();  // it may wait for the place of the operation's inputs
    }
  } catch (...) {  // no memory: the others will notice by their deadlines
  }
}

void DataExchange::add(std::uint16_t process, std::shared_ptr<DataLink> link) {
  DataLink& added = *link;
  {
    const std::lock_guard lock(mutex_);
    links_[process] = std::move(link);
  }
  added.start({.place = [this, process](const Inputs& inputs) { return place(process, inputs); },
               .received = [this, process](const Inputs& inputs) { return received(process, inputs); },
               .aborted = [this, process](const AbortedOperation& message) { return aborted(process, message); },
               .ended = [this, process](const std::string& why) { ended_(process, why); }});
}

void DataExchange::replace(std::uint16_t process, std::shared_ptr<DataLink> link,
                           const std::vector<SharedCommunicator>& ended) {
  std::exception_ptr why;
  {
    const std::lock_guard lock(mutex_);
    why = gone_[process];
  }
  if (!why) why = collective_error(CollectiveError::Kind::ProcessGone, name_of_(process) + " is gone");
  lose(process, why);  // if that was not known yet
  {
    const std::lock_guard lock(mutex_);
    for (const SharedCommunicator& each : ended) {
      const auto devices = each.devices.devices();
      ended_epochs_[{devices.begin(), devices.end()}] = {.epoch = each.epoch, .why = why};
    }
    gone_[process] = nullptr;
  }
  add(process, std::move(link));
}

bool DataExchange::has(std::uint16_t process) const { return link(process) != nullptr; }

std::vector<bool> DataExchange::awaited() const {
  std::vector<bool> awaited(gone_.size());
  const std::lock_guard lock(mutex_);
  for (const auto& [name, active] : active_)
    for (const std::uint16_t process : active.awaited) awaited[process] = true;
  return awaited;
}

std::shared_ptr<DataLink> DataExchange::link(std::uint16_t process) const {
  const std::lock_guard lock(mutex_);
  return links_[process];
}

void DataExchange::lose(std::uint16_t process, const std::exception_ptr& why) noexcept {
  std::shared_ptr<DataLink> lost;
  {
    const std::lock_guard lock(mutex_);
    lost = links_[process];
    if (!gone_[process]) gone_[process] = why;
  }
  // What has been sent may still be counted as unsent: what is left in the queue decides.
  std::deque<SendQueue::Item> dropped;
  if (lost) {
    lost->queue().close();
    dropped = lost->queue().take_unsent();  // before abort() can miss it
  }
  std::vector<std::shared_ptr<Operation>> failed;
  try {
    const std::lock_guard lock(mutex_);
    links_[process] = nullptr;
    for (const auto& [name, active] : active_) {
      if (!contains(active.processes, process)) continue;
      const bool is_unsent = !active.has_sent || contains(active.refused, process) ||
                             std::ranges::find(dropped, active.key, &SendQueue::Item::key) != dropped.end();
      if (is_unsent || contains(active.awaited, process)) failed.push_back(active.operation);
    }
  } catch (const std::bad_alloc&) {  // those that are not in the list will notice by their deadlines
  }
  if (lost) lost->close();
  for (const auto& operation : failed) operation->failed(why);
}

void DataExchange::lose_all(const std::exception_ptr& why) noexcept {
  for (std::size_t process = 0; process < links_.size(); ++process) lose(static_cast<std::uint16_t>(process), why);
}

DataLink::Place DataExchange::place(std::uint16_t process, const Inputs& inputs) {
  using Kind = DataLink::Place::Kind;
  std::shared_ptr<Operation> operation;
  {
    const std::lock_guard lock(mutex_);
    const auto found = active_.find(inputs.of);
    if (found == active_.end()) return {.kind = is_over(inputs.of) ? Kind::Discard : Kind::NotYetKnown};
    if (!contains(found->second.awaited, process)) return {.kind = Kind::Wrong};
    operation = found->second.operation;
  }
  std::vector<RankExchange::Announced> announced;
  for (const InputOfRank& rank : inputs.ranks)
    announced.push_back({.place = rank.place, .is_refused = !rank.refusal.empty(), .bytes = rank.bytes});
  DataLink::Place place{.kind = Kind::Known, .memory = {}, .owner = operation};
  switch (operation->accept(static_cast<std::uint16_t>(process + 1), announced, place.memory)) {
    case Operation::Answer::Accepted: break;
    case Operation::Answer::Wrong: return {.kind = Kind::Wrong};
    case Operation::Answer::Aborted: return {.kind = Kind::Discard};
  }
  return place;
}

bool DataExchange::received(std::uint16_t process, const Inputs& inputs) {
  std::shared_ptr<Operation> operation;
  {
    const std::lock_guard lock(mutex_);
    const auto found = active_.find(inputs.of);
    if (found == active_.end()) return true;  // aborted meanwhile
    operation = found->second.operation;
    remove(found->second.awaited, process);
    std::shared_ptr<Operation> erased;
    erase_if_done(found, erased);
  }
  return std::ranges::all_of(inputs.ranks,
                             [&](const InputOfRank& rank) { return operation->received(rank.place, rank.refusal); });
}

bool DataExchange::aborted(std::uint16_t process, const AbortedOperation& message) {
  {
    const std::lock_guard lock(mutex_);
    if (!active_.contains(message.of)) {
      if (is_over(message.of)) return true;
      if (aborted_.size() >= most_aborted) forget_aborted({message.of.devices, message.of.direction}, message.of.epoch);
      if (aborted_.size() >= most_aborted) return false;
      aborted_.emplace(message.of, std::pair(message, process));
      return true;
    }
  }
  fail(message.of, aborted_error(message, name_of_(process)));
  return true;
}

void DataExchange::note_sent(const OperationOfAll& name, std::uint16_t process) noexcept {
  std::shared_ptr<Operation> operation;
  std::shared_ptr<Operation> erased;
  {
    const std::lock_guard lock(mutex_);
    const auto found = active_.find(name);
    if (found == active_.end()) return;  // aborted
    remove(found->second.unsent, process);
    if (!found->second.unsent.empty()) return;
    operation = found->second.operation;
    erase_if_done(found, erased);
  }
  operation->sent();
}

void DataExchange::fail(const OperationOfAll& name, const std::exception_ptr& why) noexcept {
  std::shared_ptr<Operation> operation;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = active_.find(name); found != active_.end()) operation = found->second.operation;
  }
  if (operation) operation->failed(why);  // which aborts it
}

// Under the lock.
void DataExchange::erase_if_done(std::map<OperationOfAll, Active, ByName>::iterator at,
                                 std::shared_ptr<Operation>& erased) {
  if (!at->second.awaited.empty() || !at->second.unsent.empty()) return;
  erased = std::move(at->second.operation);
  active_.erase(at);
}

// Under the lock. Whether it has ended here, or never will be expected.
bool DataExchange::is_over(const OperationOfAll& name) const {
  const auto found = expected_.find({name.devices, name.direction});
  if (found == expected_.end()) return false;
  const Progress& progress = found->second;
  return name.epoch < progress.epoch || (name.epoch == progress.epoch && name.operation <= progress.last);
}

// Under the lock.
void DataExchange::note_expected(const OperationOfAll& name) {
  Progress& progress = expected_[{name.devices, name.direction}];
  if (name.epoch > progress.epoch) {
    progress = {.epoch = name.epoch, .last = 0};
    forget_aborted({name.devices, name.direction}, name.epoch);
  }
  if (name.epoch == progress.epoch) progress.last = std::max(progress.last, name.operation);
}

// Under the lock. Forgets aborts of older epochs of the sequence.
void DataExchange::forget_aborted(const SequenceName& sequence, std::uint64_t epoch) {
  std::erase_if(aborted_, [&](const auto& each) {
    const OperationOfAll& name = each.first;
    return name.epoch < epoch && name.direction == sequence.second && name.devices == sequence.first;
  });
}

}  // namespace cox::detail::world
