#include <coxswain/runtime/kept/kept_set.hpp>

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
HeldSet open_set(KeeperConnection* keeper, const std::string& name, const KeptOptions& options,
                 std::source_location site) {
  if (!OpenSets::of_process().add(name))
    throw KeptError(KeptError::Kind::InUse, "the kept set '" + name + "' is open in this process already", site);
  try {
    if (keeper == nullptr) return {};
    return keeper->open(name, options.schema, options.mode == KeptMode::Double ? "double" : "in place", site);
  } catch (...) {
    OpenSets::of_process().remove(name);
    throw;
  }
}

void require_name(const std::string& name, std::source_location site) {
  if (name.empty() || name.size() > KeeperMessage::max_name)
    throw KeptError(KeptError::Kind::Limit, "the name of kept memory must have 1 to 255 bytes", site);
}

}  // namespace

KeptSet::KeptSet(std::string name, std::vector<DeviceId> devices, KeptOptions options, Site site)
    : name_(std::move(name)),
      ids_(std::move(devices)),
      options_(std::move(options)),
      keeper_((require_name(name_, site), KeeperConnection::of_process(site))),
      held_(open_set(keeper_.get(), name_, options_, site)) {
  for (const DeviceId id : ids_) {
    devices_.push_back(std::make_unique<Device>());
    devices_.back()->id = id;
    devices_.back()->guard = std::make_shared<UpdateGuard>(UpdateGuard{name_, false});
  }
}

KeptSet::~KeptSet() {
  devices_.clear();  // unmaps memory that no handle refers to
  if (keeper_ != nullptr) keeper_->close(name_);
  OpenSets::of_process().remove(name_);
}

KeptState KeptSet::state(Site site) const {
  const std::lock_guard lock(mutex_);
  if (state_) return *state_;
  const auto missing = std::ranges::find_if(devices_, [](const auto& each) { return !each->is_open; });
  throw KeptError(KeptError::Kind::Order,
                  "the state of the kept set '" + name_ + "' is known when each of its devices has opened memory; " +
                      (*missing)->id.to_string() + " has not",
                  site);
}

void KeptSet::send_values(DeviceId device, std::uint64_t epoch, std::span<const std::byte> values, Site site) const {
  if (values.size() > KeeperMessage::max_payload)
    throw KeptError(KeptError::Kind::Limit, "the values of an update have more than 65536 bytes", site);
  if (keeper_ == nullptr) return;
  const auto found = std::ranges::find(ids_, device);
  if (found == ids_.end() || !devices_[static_cast<std::size_t>(found - ids_.begin())]->is_open)
    throw KeptError(KeptError::Kind::Order, device.to_string() + " has not opened the kept set '" + name_ + "'", site);
  keeper_->send_values(name_, devices_[static_cast<std::size_t>(found - ids_.begin())]->key, epoch, values, site);
}

void KeptSet::forget(Site site) {
  if (keeper_ != nullptr) keeper_->forget(name_, {}, {}, site);
  const std::lock_guard lock(mutex_);
  held_.memory.clear();
  held_.values.clear();
}

KeptSet::Device& KeptSet::device(DeviceId id, Site site) {
  const auto found = std::ranges::find_if(devices_, [id](const auto& each) { return each->id == id; });
  if (found == devices_.end())
    throw KeptError(KeptError::Kind::Order, "the kept set '" + name_ + "' was opened without " + id.to_string(), site);
  return **found;
}

unsigned KeptSet::current_copy(const Device& device) const {
  const std::lock_guard lock(mutex_);
  return device.copy;
}

std::optional<std::uint64_t> KeptSet::held(const std::string& key, const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const auto found = held_.memory.find({key, name});
  if (found == held_.memory.end()) return std::nullopt;
  return found->second;
}

KeptPieces KeptSet::take(const std::string& key, const std::string& name, Site site) const {
  return keeper_->take(name_, key, name, site);
}

void KeptSet::keep(const std::string& key, const std::string& name, std::uint64_t bytes, KeptStorage& storage,
                   Site site) const {
  KeptPieces pieces = storage.take_pieces();
  if (keeper_ != nullptr) keeper_->keep(name_, key, name, bytes, std::move(pieces), site);
}

void KeptSet::opened(Device& device, Site site) {
  const std::lock_guard lock(mutex_);
  device.is_open = true;
  if (!state_ && std::ranges::all_of(devices_, [](const auto& each) { return each->is_open; })) decide(site);
}

void KeptSet::add(Device& device, const std::string& name, Memory memory, Site site) {
  const std::lock_guard lock(mutex_);
  const Memory& added = device.memory[name] = std::move(memory);
  if (state_) poison_if_torn(device, added, site);
}

void KeptSet::decide(Site site) {
  const bool two_copies = options_.mode == KeptMode::Double;
  std::vector<KeptRecord> records;
  for (const auto& each : devices_) records.push_back(each->found);
  const std::optional<std::uint64_t> epoch = common_epoch(records, two_copies);
  KeptState state;
  state.supervised = keeper_ != nullptr;
  const bool begun =
      std::ranges::any_of(records, [](const auto& each) { return KeptMark::from(each.mark).epoch != 0; });
  if (begun) state.kind = epoch ? KeptState::Kind::Whole : KeptState::Kind::Torn;
  state.epoch = epoch.value_or(0);
  for (const auto& each : devices_) {
    const KeptMark mark = KeptMark::from(each->found.mark);
    // The contents of this device alone: those of the current copy, unless an update writes them.
    const std::uint64_t own =
        copy_of_epoch(each->found, each->found.committed[mark.copy], two_copies) ? each->found.committed[mark.copy] : 0;
    if (epoch)
      each->copy = *copy_of_epoch(each->found, *epoch, two_copies);
    else
      each->copy = mark.copy;
    each->last_epoch = mark.epoch;
    state.last_epoch = std::max(state.last_epoch, mark.epoch);
    state.devices.push_back({each->id, mark.updating, mark.epoch, epoch.value_or(own), {}});
    for (HeldSet::Values& values : held_.values)
      if (epoch && values.device == each->key && values.epoch == *epoch) state.devices.back().values = values.bytes;
  }
  for (const auto& each : devices_) each->last_epoch = state.last_epoch;
  if (begun && keeper_ != nullptr) {
    // Of torn memory only the update before the open one is known to have been committed.
    state.runs_without_commit = keeper_->found(name_, epoch.value_or(state.last_epoch - 1), site);
    state.suspect = options_.suspect_after != 0 && state.runs_without_commit >= options_.suspect_after;
  }
  state_ = std::move(state);
  for (const auto& each : devices_)
    for (const auto& [name, memory] : each->memory) poison_if_torn(*each, memory, site);
}

void KeptSet::poison_if_torn(const Device& device, const Memory& memory, Site site) const {
  const auto found = std::ranges::find_if(state_->devices, [&](const auto& each) { return each.device == device.id; });
  if (!memory.restored || state_->kind != KeptState::Kind::Torn || found->epoch != 0) return;
  const auto cause = std::make_exception_ptr(
      KeptError(KeptError::Kind::Memory,
                "the memory of the kept set '" + name_ + "' on " + device.id.to_string() + " is torn: update " +
                    std::to_string(found->last_epoch) + " was begun and not committed",
                site));
  for (const auto& handle : memory.handles)
    if (handle) device.poison(*handle, cause);
}

}  // namespace cox
