#include <coxswain/tools/cox/stress/round_book.hpp>

#include <coxswain/tools/cox/stress/round_values.hpp>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

namespace cox::stress {
namespace {

constexpr std::size_t most_ways = 24;  // lines of transfers

}  // namespace

std::size_t RoundBook::most_rounds(std::uint32_t clients) noexcept {
  constexpr std::size_t most = 256;
  return std::min(16 + 2 * std::size_t{clients}, most);
}

RoundBook::RoundBook(const Options& options, std::size_t most_bytes)
    : options_(options),
      most_bytes_(most_bytes),
      most_rounds_(most_rounds(options.clients)),
      working_(options.clients),
      timeout_(options.faults.missing > 0 ? std::optional(short_timeout) : std::nullopt) {
  if (options.shared) agenda_.emplace(options);
  const std::size_t first_own = options.shared ? options.shared->first_own : 0;
  constexpr std::uint64_t part = 0x5E75;
  Random random(Random::derived(options.seed, part));
  const auto add_line = [&](RoundGroup& group, DeviceSet devices, bool transfers) {
    RoundLine& line = lines_.emplace_back();
    line.group = &group;
    line.devices = std::move(devices);
    line.transfers = transfers;
    for (std::size_t rank = 0; rank < line.devices.size(); ++rank) {
      RoundLane& lane = line.lanes.emplace_back();
      lane.line = &line;
      lane.rank = rank;
      const std::size_t device = line.devices[rank];
      if (device < first_own || device >= first_own + options.devices.size()) continue;
      lane.device = device - first_own;
      ++line.own;
      lanes_.push_back(&lane);
    }
    (transfers ? transfers_ : collectives_).push_back(&line);
  };
  for (DeviceSet& set : choose_device_sets(options.ranks().size(), random)) {
    std::vector<DeviceId> ids;
    for (const std::size_t device : set) ids.push_back(options.ranks()[device]);
    RoundGroup& group = groups_.emplace_back(CommunicationId(ids), set);
    add_line(group, set, false);
    if (set.size() != 2 || transfers_.size() >= most_ways) continue;
    add_line(group, set, true);
    add_line(group, {set[1], set[0]}, true);
  }
}

RoundLine& RoundBook::pick_line(Operation operation, Random& random) {
  const auto& lines = operation == Operation::Transfer ? transfers_ : collectives_;
  return *lines[static_cast<std::size_t>(random.below(lines.size()))];
}

std::size_t RoundBook::bytes_of(const Round& round) {
  std::size_t bytes = 0;
  for (const RoundPart& part : round.parts)
    bytes += source_bytes(part, round.world_size(), 0) + result_bytes(part, round.world_size(), round.world_size() - 1);
  return bytes;
}

bool RoundBook::has_room(std::size_t bytes) const noexcept {
  const std::size_t open = open_count_.load(std::memory_order_relaxed);
  return open == 0 || (open < most_rounds_ && open_bytes_.load(std::memory_order_relaxed) + 2 * bytes <= most_bytes_);
}

void RoundBook::open(const std::shared_ptr<Round>& round, RoundLine& line) {
  round->number = line.next++;
  round->calls_left.store(line.own, std::memory_order_relaxed);
  ++line.group->open;
  open_count_.fetch_add(1, std::memory_order_relaxed);
  round->bytes = bytes_of(*round);
  open_bytes_.fetch_add(round->bytes, std::memory_order_relaxed);
  const std::lock_guard lock(mutex_);
  open_.push_back(round);
}

bool RoundBook::append(const std::vector<std::shared_ptr<Round>>& rounds, bool rest) {
  RoundLine& line = *rounds.front()->line;
  const std::lock_guard lock(line.group->mutex);
  if (line.group->resting) return false;
  line.group->resting = rest;
  for (const auto& round : rounds) {
    open(round, line);
    const bool one_misses = round->fault == Fault::Missing && round->missing_before == nullptr;
    if (one_misses) round->calls_left.fetch_sub(1, std::memory_order_relaxed);
    for (RoundLane& lane : line.lanes) {
      if (!lane.device || (one_misses && lane.rank == round->faulty_rank)) continue;
      const std::lock_guard in_lane(lane.mutex);
      lane.pending.push_back(round);
      lane.size.store(lane.pending.size(), std::memory_order_relaxed);
    }
  }
  return true;
}

// Until the round that a rank has left out times out, the rank's next call would be matched with that round.
bool RoundBook::is_callable(const RoundLane& lane) {
  if (lane.pending.empty()) return false;
  const Round& round = *lane.pending.front();
  return round.missing_before == nullptr || lane.rank != round.faulty_rank ||
         round.missing_before->timed_out.load(std::memory_order_acquire);
}

void RoundBook::called(const std::shared_ptr<Round>& round) {
  if (round->calls_left.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  const std::lock_guard lock(mutex_);
  called_.push_back(round);
}

std::shared_ptr<Round> RoundBook::take_called(Random& random) {
  const std::lock_guard lock(mutex_);
  if (called_.empty()) return nullptr;
  std::swap(called_[static_cast<std::size_t>(random.below(called_.size()))], called_.back());
  std::shared_ptr<Round> round = std::move(called_.back());
  called_.pop_back();
  return round;
}

RoundGroup* RoundBook::ended(const Round& round) {
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(open_, [&](const auto& each) { return each.get() == &round; });
  }
  checked_.fetch_add(1, std::memory_order_relaxed);
  open_bytes_.fetch_sub(round.bytes, std::memory_order_relaxed);
  RoundGroup& group = *round.line->group;
  const std::lock_guard lock(group.mutex);
  open_count_.fetch_sub(1, std::memory_order_relaxed);
  if (--group.open > 0 || !group.resting || group.held > 0) return nullptr;
  group.renewing = true;
  return &group;
}

void RoundBook::renewed(RoundGroup& group) {
  const std::lock_guard lock(group.mutex);
  group.renewing = false;
  group.resting = group.held > 0;
  for (RoundLine& line : lines_)
    if (line.group == &group) line.broken_from = std::numeric_limits<std::uint64_t>::max();
  group.renewed.notify_all();
}

template <class F>
void RoundBook::for_each_group_of(std::size_t device, const F& f) {
  for (RoundGroup& group : groups_) {
    if (!std::ranges::binary_search(group.members, device)) continue;
    std::unique_lock lock(group.mutex);
    f(group, lock);
  }
}

void RoundBook::shake(std::size_t device) {
  for_each_group_of(device, [this](RoundGroup& group, std::unique_lock<std::mutex>& in_group) {
    group.renewed.wait(in_group, [&group] { return !group.renewing; });
    group.resting = true;
    ++group.held;
    const std::lock_guard lock(mutex_);
    for (const auto& round : open_)
      if (round->line->group == &group) round->shaken.store(true, std::memory_order_release);
  });
}

bool RoundBook::begin_abort(RoundGroup& group, std::string cause) {
  const std::lock_guard lock(group.mutex);
  if (group.resting) return false;
  group.resting = true;
  ++group.held;
  const std::string& kept = group.abort_causes.emplace_back(std::move(cause));
  const std::lock_guard in_book(mutex_);
  for (const auto& round : open_)
    if (round->line->group == &group) round->abort_cause.store(&kept, std::memory_order_release);
  return true;
}

bool RoundBook::called_all(const RoundGroup& group) {
  return std::ranges::all_of(lanes_, [&group](RoundLane* lane) {
    if (lane->line->group != &group) return true;
    const std::lock_guard lock(lane->mutex);  // waits for the call that is being made
    return lane->pending.empty();
  });
}

bool RoundBook::released(RoundGroup& group) {
  const std::lock_guard lock(group.mutex);
  group.renewing = --group.held == 0 && group.open == 0;
  return group.renewing;
}

bool RoundBook::called_all(std::size_t device) {
  return std::ranges::all_of(lanes_, [device](RoundLane* lane) {
    if (!std::ranges::binary_search(lane->line->group->members, device)) return true;
    const std::lock_guard lock(lane->mutex);  // waits for the call that is being made
    return lane->pending.empty();
  });
}

void RoundBook::drop_calls(std::size_t device, bool of_others) {
  for (RoundLane* lane : lanes_) {
    if (!std::ranges::binary_search(lane->line->group->members, device)) continue;
    if ((lane->line->devices[lane->rank] != device) != of_others) continue;
    const std::lock_guard lock(lane->mutex);
    for (const auto& round : std::exchange(lane->pending, {})) called(round);
    lane->size.store(0, std::memory_order_relaxed);
  }
}

std::vector<RoundGroup*> RoundBook::released(std::size_t device) {
  std::vector<RoundGroup*> groups;
  for_each_group_of(device, [&](RoundGroup& group, auto&) {
    group.renewing = --group.held == 0 && group.open == 0;
    if (group.renewing) groups.push_back(&group);
  });
  return groups;
}

void RoundBook::broken(const Round& round) {
  RoundLine& line = *round.line;
  const std::lock_guard lock(line.group->mutex);
  line.group->resting = true;
  line.broken_from = std::min(line.broken_from, round.number);
}

bool RoundBook::may_time_out(const Round& round) const {
  if (!timeout_) return false;
  RoundLine& line = *round.line;
  {
    const std::lock_guard lock(line.group->mutex);
    if (line.broken_from <= round.number) return true;
  }
  const std::lock_guard lock(mutex_);
  return std::any_of(open_.begin(), open_.end(), [&](const auto& other) {
    return other->line == &line && other->number <= round.number && other->span() >= *timeout_;
  });
}

void RoundBook::add_to_digest(const Round& round, std::size_t rank, std::size_t part,
                              std::span<const std::byte> result) {
  std::uint64_t hash = Random::derived(Random::derived(*round.agenda_number, rank), part);
  for (std::size_t at = 0; at < result.size(); at += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, result.data() + at, std::min(sizeof(word), result.size() - at));
    hash = Random::derived(hash, word);
  }
  digest_.fetch_add(hash, std::memory_order_relaxed);
}

std::optional<Violation> RoundBook::overdue(std::chrono::steady_clock::duration patience) const {
  std::shared_ptr<Round> oldest;
  {
    const std::lock_guard lock(mutex_);
    if (open_.empty() || Clock::now() - open_.front()->begun < patience) return std::nullopt;
    oldest = open_.front();
  }
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(patience).count();
  std::string got = "hang: it has not ended for " + std::to_string(seconds) + " s";
  if (const std::size_t left = oldest->calls_left.load(std::memory_order_relaxed); left > 0)
    got += ", and " + std::to_string(left) + " ranks have not been called yet";
  return Violation{
      .law = Law::Deadlock,
      .expected = std::string(to_string(oldest->operation)) + " of " + oldest->line->group->id.to_string() + " ends",
      .got = std::move(got),
      .client = oldest->ticket.client,
      .device = device(oldest->line->devices.front()),
      .stream = {},
      .sequence = oldest->ticket.sequence};
}

}  // namespace cox::stress
