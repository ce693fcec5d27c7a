#include <coxswain/runtime/kept/kept_set.hpp>

#include <coxswain/device_handle/base/deadline.hpp>
#include <coxswain/runtime/config/duration.hpp>
#include <coxswain/runtime/config/process_settings.hpp>
#include <coxswain/runtime/kept/kept_error.hpp>

#include <algorithm>
#include <set>
#include <utility>

namespace cox {
namespace {

// The sets that are open in this process.
class OpenSets {
 public:
  static OpenSets& of_process() {
    static OpenSets sets;
    return sets;
  }
  [[nodiscard]] bool add(const std::string& name) {
    const std::lock_guard lock(mutex_);
    return names_.insert(name).second;
  }
  void remove(const std::string& name) noexcept {
    const std::lock_guard lock(mutex_);
    names_.erase(name);
  }

 private:
  std::mutex mutex_;
  std::set<std::string> names_;
};

// Opens the set at the supervisor, if there is one.
HeldSet open_set(KeeperConnection* keeper, const std::string& name, std::size_t devices, const KeptOptions& options,
                 std::source_location site) {
  if (!OpenSets::of_process().add(name))
    throw KeptError(KeptError::Kind::InUse, "the kept set '" + name + "' is open in this process already", site);
  try {
    if (keeper == nullptr) return {};
    const std::string mode = options.mode == KeptMode::Double ? "double" : "in place";
    HeldSet held = keeper->open(name, options.schema, mode + ", " + std::to_string(devices) + " devices", site);
    if (held.generation > KeptMark::max_generation)
      throw KeptError(KeptError::Kind::Limit, "the supervisor has had too many processes: start it again", site);
    return held;
  } catch (...) {
    OpenSets::of_process().remove(name);
    throw;
  }
}

void require_valid(const std::string& name, const std::vector<DeviceId>& devices, std::source_location site) {
  if (name.empty() || name.size() > KeeperMessage::max_name)
    throw KeptError(KeptError::Kind::Limit, "the name of kept memory must have 1 to 255 bytes", site);
  if (devices.empty() || std::set<DeviceId>(devices.begin(), devices.end()).size() != devices.size())
    throw KeptError(KeptError::Kind::Order, "a kept set needs at least one device, and none twice", site);
}

}  // namespace

KeptSet::KeptSet(std::string name, std::vector<DeviceId> devices, KeptOptions options, Site site)
    : name_(std::move(name)),
      ids_(std::move(devices)),
      options_(std::move(options)),
      keeper_((require_valid(name_, ids_, site), KeeperConnection::of_process(site))),
      held_(open_set(keeper_.get(), name_, ids_.size(), options_, site)) {
  for (const DeviceId id : ids_) {
    devices_.push_back(std::make_unique<Device>());
    devices_.back()->id = id;
    devices_.back()->guard = std::make_shared<UpdateGuard>(UpdateGuard{name_, false});
  }
}

KeptSet::~KeptSet() {
  for (const auto& each : devices_) {
    each->record.handles = {};
    each->read_record = nullptr;
    for (auto& [name, memory] : each->memory) memory.handles = {};
  }
  // Work that still uses the memory is not in order with that of another set over the same memory. Without a supervisor
  // another set has other memory.
  const bool can_be_reopened = keeper_ == nullptr || is_idle();
  devices_.clear();
  if (!can_be_reopened) return;
  if (keeper_ != nullptr) keeper_->close(name_);
  OpenSets::of_process().remove(name_);
}

bool KeptSet::is_idle() const noexcept {
  const auto is_unused = [](const Memory& memory) {
    return std::ranges::all_of(memory.storage,
                               [](const auto& each) { return each == nullptr || each.use_count() == 1; });
  };
  return std::ranges::all_of(devices_, [&](const auto& device) {
    return is_unused(device->record) &&
           std::ranges::all_of(device->memory, [&](const auto& each) { return is_unused(each.second); });
  });
}

KeptState KeptSet::state(Site site) const {
  const std::lock_guard lock(mutex_);
  find_state(site);
  return *state_;
}

void KeptSet::require_state(Site site) const {
  const std::lock_guard lock(mutex_);
  find_state(site);
}

// Under the lock.
void KeptSet::find_state(Site site) const {
  if (state_ && has_checksums() && !checked_) finish_checks(site);
  if (state_) return;
  std::string missing;
  for (const auto& each : devices_)
    if (!each->is_open) missing += (missing.empty() ? "" : ", ") + each->id.to_string();
  throw KeptError(KeptError::Kind::Order,
                  "the state of the kept set '" + name_ + "' is known when each of its devices has opened memory; " +
                      (missing.empty() ? "opening it has failed" : missing + " has not"),
                  site);
}

void KeptSet::send_values(const Device& device, std::span<const std::byte> values, Site site) const {
  if (values.size() > KeeperMessage::max_payload)
    throw KeptError(KeptError::Kind::Limit, "the values of an update have more than 65536 bytes", site);
  if (keeper_ != nullptr) keeper_->send_values(name_, device.key, device.last_epoch, values, site);
}

void KeptSet::forget(Site site) {
  if (keeper_ != nullptr) keeper_->forget(name_, {}, {}, site);
  const std::lock_guard lock(mutex_);
  forgotten_ = true;
}

KeptSet::Device& KeptSet::device(DeviceId id, Site site) {
  const auto found = std::ranges::find_if(devices_, [id](const auto& each) { return each->id == id; });
  if (found == devices_.end())
    throw KeptError(KeptError::Kind::Order, "the kept set '" + name_ + "' was opened without " + id.to_string(), site);
  const std::lock_guard lock(mutex_);
  if (forgotten_)
    throw KeptError(KeptError::Kind::Order, "the kept set '" + name_ + "' has been forgotten: open it anew", site);
  return **found;
}

// Memory that is made for a device is held for it. So a device that cannot belong to the set is refused before: the
// supervisor would hold memory for more devices than any process can open.
void KeptSet::identify(Device& device, std::string key, Site site) {
  const std::lock_guard lock(mutex_);
  std::set<std::string> holding;
  for (const auto& [place, memory] : held_.memory) holding.insert(place.first);
  std::set<std::string> all = holding;
  for (const auto& each : devices_)
    if (!each->key.empty()) all.insert(each->key);
  all.insert(key);
  if (all.size() > devices_.size()) {
    std::string names;
    for (const std::string& each : holding) names += (names.empty() ? "" : ", ") + each;
    throw KeptError(KeptError::Kind::Schema,
                    "the supervisor holds memory of the kept set '" + name_ + "' for " + names + ", not for " +
                        device.id.to_string() + (key == device.id.to_string() ? "" : " (" + key + ")") +
                        "; it stays held",
                    site);
  }
  device.key = std::move(key);
}

void KeptSet::require_complete(Device& device, Site site) const {
  const std::lock_guard lock(mutex_);
  require_opened(device, site);
}

void KeptSet::require_opened(Device& device, Site site) const {
  if (device.is_complete) return;
  for (const auto& [key, memory] : held_.memory) {
    const auto& [held_by, name] = key;
    if (held_by != device.key || name == record_name) continue;
    const bool two_copies = options_.mode == KeptMode::Double;
    if (!device.memory.contains(two_copies ? name.substr(0, name.size() - 2) : name))
      throw KeptError(KeptError::Kind::Order,
                      "the supervisor holds memory '" + name + "' of the kept set '" + name_ + "' for " +
                          device.id.to_string() + ", which this process has not opened: open all, or forget the set",
                      site);
  }
  device.is_complete = true;
}

void KeptSet::wait_for_commits(const Device& device, Site site) const {
  if (mode() != KeptMode::Double || devices_.size() == 1 || options_.collective_between) return;
  const auto refuse = [&](const std::string& why, const std::exception_ptr& cause = nullptr) {
    throw KeptError(
        KeptError::Kind::Order,
        "the next update of the kept set '" + name_ + "' cannot begin on " + device.id.to_string() + ": " + why, site,
        cause);
  };
  const auto longest = settings().get<std::chrono::nanoseconds>("collectives.timeout");
  std::uint64_t epoch = 0;
  {
    std::unique_lock lock(mutex_);
    epoch = device.committed;
    const auto has_not = [&](const auto& each) { return each->committed < epoch; };
    if (!committed_.wait_until(lock, detail::deadline_after(longest),
                               [&] { return std::ranges::none_of(devices_, has_not); }))
      refuse((*std::ranges::find_if(devices_, has_not))->id.to_string() + " has not committed update " +
             std::to_string(epoch) + " within " + format_duration(longest) + " (collectives.timeout)");
  }
  if (epoch == 0) return;  // there is nothing that all hold
  for (const auto& each : devices_) {
    const std::string commit = "the commit of update " + std::to_string(epoch) + " on " + each->id.to_string();
    const std::string advice = "; to continue at the last update that all devices hold, open the set anew";
    KeptRecord record;
    try {
      record = each->read_record();
    } catch (const Error&) {  // a commit that was refused has poisoned the record; or the device is lost
      refuse(commit + " has failed, or cannot be confirmed" + advice, std::current_exception());
    }
    if (!copy_of_epoch(record, epoch, true)) refuse(commit + " was refused" + advice);
  }
}

void KeptSet::note_commit(Device& device) {
  {
    const std::lock_guard lock(mutex_);
    device.committed = device.last_epoch;
  }
  committed_.notify_all();
}

// Under the lock.
void KeptSet::set_committed(std::uint64_t epoch) {
  for (const auto& each : devices_) each->committed = epoch;
}

std::size_t KeptSet::checksum_number(Device& device, const std::string& name, Site site) const {
  const std::uint64_t number = checksum_name(name);
  const auto found = std::ranges::find_if(
      device.checksums, [number](const KeptChecksum& each) { return each.name == number || each.name == 0; });
  if (found == device.checksums.end())
    throw KeptError(KeptError::Kind::Limit,
                    "the kept set '" + name_ + "' can have checksums of " +
                        std::to_string(KeptRecordMemory::max_checksums) + " allocations of a device, not of more",
                    site);
  found->name = number;
  return static_cast<std::size_t>(found - device.checksums.begin());
}

std::optional<std::uint64_t> KeptSet::expected_sum(const Device& device, std::size_t checksum,
                                                   unsigned copy) const noexcept {
  const KeptChecksum& found = device.checksums[checksum];
  const std::uint64_t epoch = device.found.committed[copy];
  const bool holds = copy_of_epoch(device.found, epoch, options_.mode == KeptMode::Double) == copy;
  if (!holds || found.epoch != epoch) return std::nullopt;
  return found.sum;
}

// All memory with checksums is open: compares it with them, and poisons what differs.
void KeptSet::finish_checks(Site site) const {
  for (const auto& each : devices_) require_opened(*each, site);
  for (std::size_t i = 0; i < devices_.size(); ++i) check_device(state_->devices[i], *devices_[i], site);
  const bool corrupt = std::ranges::any_of(state_->devices, [](const auto& each) { return !each.corrupt.empty(); });
  std::erase_if(state_->epochs, [this](std::uint64_t epoch) {
    return std::ranges::any_of(devices_, [&](const auto& device) {
      const auto copy = copy_of_epoch(device->found, epoch, options_.mode == KeptMode::Double);
      return std::ranges::any_of(device->memory, [&](const auto& each) {
        return is_committed(*device, each.second) && each.second.checks[copy.value()] == Check::Differs;
      });
    });
  });
  if (corrupt && state_->kind == KeptState::Kind::Whole) state_->kind = KeptState::Kind::Corrupt;
  checked_ = true;
}

void KeptSet::check_device(KeptState::Device& state, const Device& device, Site site) const {
  if (state.epoch == 0) return;  // torn
  for (const auto& [name, memory] : device.memory) {
    const Check check = memory.checks[device.copy];
    if (!is_committed(device, memory) || check == Check::Same) continue;
    (check == Check::Differs ? state.corrupt : state.not_checked).push_back(name);
    if (check == Check::Differs)
      device.poison(*memory.handles[device.copy],
                    std::make_exception_ptr(
                        KeptError(KeptError::Kind::Memory,
                                  "memory '" + name + "' of the kept set '" + name_ + "' on " + device.id.to_string() +
                                      " differs from the checksum of its commit, epoch " + std::to_string(state.epoch),
                                  site)));
  }
  if (!state.corrupt.empty()) state.epoch = 0;
}

unsigned KeptSet::current_copy(const Device& device) const {
  const std::lock_guard lock(mutex_);
  return device.copy;
}

std::optional<HeldSet::Memory> KeptSet::held(const std::string& key, const std::string& name) const {
  const auto found = held_.memory.find({key, name});
  if (found == held_.memory.end()) return std::nullopt;
  return found->second;
}

KeptPieceSource KeptSet::pieces(const std::string& key, const std::string& name, Site site) const {
  return [this, key, name, site, first = std::size_t{0}]() mutable {
    KeptPieces next = keeper_->take(name_, key, name, first, site);
    first += next.sizes.size();
    return next;
  };
}

void KeptSet::keep(const Device& device, const std::string& name, std::uint64_t bytes, KeptStorage& storage,
                   Site site) const {
  if (keeper_ == nullptr) return storage.not_shared();
  const std::uint64_t epoch = std::max(device.last_epoch, KeptMark::from(device.found.mark).epoch);
  keeper_->keep(name_, device.key, name, bytes, epoch, [&] { return storage.next_pieces(site); }, site);
}

void KeptSet::drop(const Device& device, const std::string& name) const noexcept {
  try {
    if (keeper_ != nullptr) keeper_->forget(name_, device.key, name, {});
  } catch (...) {  // the supervisor does not answer, or has never had it
  }
}

void KeptSet::lose(const Device& device) const noexcept {
  try {
    if (keeper_ != nullptr) keeper_->lose(name_, device.key, {});
  } catch (...) {  // the supervisor does not answer
  }
}

void KeptSet::opened(Device& device, Site site) {
  const std::lock_guard lock(mutex_);
  device.is_open = true;
  if (state_ || std::ranges::any_of(devices_, [](const auto& each) { return !each->is_open; })) return;
  KeptState state = state_of_records();
  report_found(state, site);
  for (const auto& each : devices_) each->last_epoch = state.last_epoch;
  set_committed(state.epoch);
  state_ = std::move(state);
  for (const auto& each : devices_)
    for (const auto& [name, memory] : each->memory) poison_if_torn(*each, memory, site);
}

bool KeptSet::is_restored(const Device& device, const Memory& memory) const {
  const std::lock_guard lock(mutex_);
  return is_committed(device, memory);
}

// Under the lock. Memory that was made after the commit of the epoch at which the set continues is not part of it.
// Before that epoch is known, and if the set is torn, the last commit of the device counts.
bool KeptSet::is_committed(const Device& device, const Memory& memory) const {
  if (!memory.adopted_since) return false;
  std::uint64_t epoch = state_ ? state_->epoch : 0;
  if (state_ && epoch == 0) epoch = std::ranges::find(state_->devices, device.id, &KeptState::Device::device)->epoch;
  if (epoch == 0) epoch = std::max(device.found.committed[0], device.found.committed[1]);
  return epoch > *memory.adopted_since;
}

void KeptSet::add(Device& device, const std::string& name, Memory memory, Site site) {
  const std::lock_guard lock(mutex_);
  const Memory& added = device.memory[name] = std::move(memory);
  if (state_) poison_if_torn(device, added, site);
}

// Also sets the current copy of each device.
KeptState KeptSet::state_of_records() const {
  const bool two_copies = options_.mode == KeptMode::Double;
  std::vector<KeptRecord> records;
  for (const auto& each : devices_) records.push_back(each->found);
  KeptState state;
  state.epochs = common_epochs(records, two_copies);
  const std::optional<std::uint64_t> epoch = state.epochs.empty() ? std::nullopt : std::optional(state.epochs.front());
  state.supervised = keeper_ != nullptr;
  const bool begun = !held_.lost.empty() || std::ranges::any_of(records, [](const auto& each) {
    return KeptMark::from(each.mark).epoch != 0;
  });
  if (begun) state.kind = epoch ? KeptState::Kind::Whole : KeptState::Kind::Torn;
  state.epoch = epoch.value_or(0);
  for (const auto& each : devices_) {
    const KeptMark mark = KeptMark::from(each->found.mark);
    // The contents of this device alone: those of the current copy, unless an update writes them.
    const std::uint64_t committed = each->found.committed[mark.copy];
    const std::uint64_t own = copy_of_epoch(each->found, committed, two_copies) ? committed : 0;
    each->copy = epoch ? *copy_of_epoch(each->found, *epoch, two_copies) : mark.copy;
    state.last_epoch = std::max(state.last_epoch, mark.epoch);
    state.devices.push_back({each->id, mark.updating, mark.epoch, epoch.value_or(own), {}});
    state.devices.back().lost = held_.lost.contains(each->key);
    if (epoch) set_values(state.devices.back(), *each, *epoch);
  }
  return state;
}

void KeptSet::set_values(KeptState::Device& state, const Device& device, std::uint64_t epoch) const {
  state.values.reset();
  for (const HeldSet::Values& values : held_.values)
    if (values.device == device.key && values.epoch == epoch) state.values = values.bytes;
}

void KeptSet::continue_at(const KeptAgreement& agreement, Site site) {
  const std::lock_guard lock(mutex_);
  find_state(site);
  KeptState& state = *state_;
  const auto refuse = [&](const std::string& why) {
    throw KeptError(
        KeptError::Kind::Order,
        "the kept set '" + name_ + "' cannot continue at epoch " + std::to_string(agreement.epoch) + ": " + why, site);
  };
  if (std::ranges::any_of(devices_, [&](const auto& each) { return each->last_epoch != state.last_epoch; }))
    refuse("an update has been begun");
  if (agreement.last_epoch < state.last_epoch || agreement.last_epoch > KeptMark::max_epoch)
    refuse("this process has begun update " + std::to_string(state.last_epoch) + ", the newest of the agreement is " +
           std::to_string(agreement.last_epoch));
  if (agreement.epoch != 0 && std::ranges::find(state.epochs, agreement.epoch) == state.epochs.end())
    refuse("this process does not hold it");
  if (agreement.epoch == 0) {
    if (state.kind != KeptState::Kind::Empty) state.kind = KeptState::Kind::Torn;
    state.epoch = 0;
    state.epochs.clear();
    for (KeptState::Device& each : state.devices) each.values.reset();
  } else if (agreement.epoch != state.epoch) {
    select_epoch(state, agreement.epoch, site);
  }
  state.runs_without_commit = agreement.runs_without_commit;
  state.suspect = agreement.suspect;
  state.last_epoch = agreement.last_epoch;
  for (const auto& each : devices_) each->last_epoch = agreement.last_epoch;
  set_committed(agreement.epoch);
}

// Under the lock. The epoch is older than that of the state.
void KeptSet::select_epoch(KeptState& state, std::uint64_t epoch, Site site) {
  state.kind = KeptState::Kind::Whole;
  state.epoch = epoch;
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    Device& device = *devices_[i];
    KeptState::Device& of_device = state.devices[i];
    device.copy = copy_of_epoch(device.found, epoch, options_.mode == KeptMode::Double).value();
    of_device.epoch = epoch;
    of_device.corrupt.clear();
    of_device.not_checked.clear();
    set_values(of_device, device, epoch);
    if (has_checksums()) check_device(of_device, device, site);
  }
}

// Reports the last committed epoch to the supervisor, which returns the number of runs without a commit.
void KeptSet::report_found(KeptState& state, Site site) const {
  if (keeper_ == nullptr || held_.memory.empty()) return;
  std::uint64_t committed = state.epoch;
  if (state.kind == KeptState::Kind::Torn)
    for (const auto& each : devices_)
      committed = std::max({committed, each->found.committed[0], each->found.committed[1]});
  state.runs_without_commit = keeper_->found(name_, committed, site);
  state.suspect = options_.suspect_after != 0 && state.runs_without_commit >= options_.suspect_after;
}

void KeptSet::poison_if_torn(const Device& device, const Memory& memory, Site site) const {
  const auto found = std::ranges::find_if(state_->devices, [&](const auto& each) { return each.device == device.id; });
  if (!memory.adopted_since || state_->kind != KeptState::Kind::Torn || found->epoch != 0) return;
  const auto cause = std::make_exception_ptr(
      KeptError(KeptError::Kind::Memory,
                "the memory of the kept set '" + name_ + "' on " + device.id.to_string() + " is torn: update " +
                    std::to_string(found->last_epoch) + " was begun and not committed",
                site));
  for (const auto& handle : memory.handles)
    if (handle) device.poison(*handle, cause);
}

}  // namespace cox
