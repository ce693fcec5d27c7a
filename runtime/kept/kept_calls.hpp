#pragma once

#include <coxswain/runtime/base/caller.hpp>
#include <coxswain/runtime/handle/binding.hpp>
#include <coxswain/runtime/handle/handle.hpp>
#include <coxswain/runtime/kept/kept_checksum.hpp>
#include <coxswain/runtime/kept/kept_error.hpp>
#include <coxswain/runtime/kept/kept_record.hpp>
#include <coxswain/runtime/kept/kept_set.hpp>
#include <coxswain/runtime/kept/kept_storage.hpp>
#include <coxswain/runtime/memory/borrowed_memory.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace cox {

/// A change of the record of a kept set, as one operation of a stream.
struct KeptMarking {
  Binding record;
  std::vector<Binding> memory;  ///< all memory of the set on this device, which the operation is in order with
  KeptMarkChange change;
  std::shared_ptr<UpdateGuard> guard;

  /// Of a commit: throws KeptError Order if the begin of its update has failed. Device thread.
  void require_begun(std::source_location site) const {
    if (change.kind == KeptMarkChange::Kind::Commit && !guard->is_open)
      throw KeptError(KeptError::Kind::Order,
                      "an update of the kept set '" + guard->set + "' is not committed, because its begin has failed",
                      site);
  }
};

/// A checksum of memory, as one operation of a stream: writes a KeptChecksum.
struct KeptSumming {
  Binding memory;
  std::size_t bytes;  ///< of the memory
  Binding checksum;   ///< where it is written
  std::uint64_t name;
  std::uint64_t epoch;
};

/// A server of kept memory: see KeptCalls.
///
/// - make_kept(device, bytes, site): new memory, zeroed. adopt_kept(device, bytes, pieces, site): that of another
///   process, made with the same number of bytes. kept_key(device): a text by which another process finds the device.
///   require_sound_memory(device, site): throws KeptError Lost if the device's memory has had an uncorrectable error
///   and was not reset since. Throw KeptError. Block; any thread but a device thread.
/// - count_kept(bytes, caller): counts that much kept memory in the device's reports and against its limit until the
///   result is destroyed, on any thread. Throws KeptError Memory if the limit does not allow it. Device thread only.
/// - mark_kept(marking, caller): queues the change after all work that uses the memory. A commit fails if the memory is
///   poisoned. Failures as launch. After the failure of a begin, commits and writes fail until the next begin; after
///   that of a commit, writes do.
/// - sum_kept(summing, caller): queues a checksum of the memory. Failures as launch.
/// - poison(memory, cause, caller): poisons the allocation, in stream order.
template <class S>
concept KeptServer = requires(S& server, DeviceId device, std::size_t bytes, const KeptPieceSource& pieces,
                              KeptMarking marking, const KeptSumming& summing, const Binding& memory,
                              const std::exception_ptr& cause, const Caller& caller, std::source_location site) {
  { server.count_kept(bytes, caller) } -> std::same_as<std::shared_ptr<void>>;
  { S::make_kept(device, bytes, site) } -> std::same_as<std::shared_ptr<KeptStorage>>;
  { S::adopt_kept(device, bytes, pieces, site) } -> std::same_as<std::shared_ptr<KeptStorage>>;
  { S::kept_key(device) } -> std::same_as<std::string>;
  { S::require_sound_memory(device, site) } -> std::same_as<void>;
  { server.mark_kept(std::move(marking), caller) } -> std::same_as<void>;
  { server.sum_kept(summing, caller) } -> std::same_as<void>;
  { server.poison(memory, cause, caller) } -> std::same_as<void>;
};

/// Memory of a kept set on one device.
struct KeptMemory {
  Handle handle;  ///< Double: the current copy as it was when the memory was opened; see kept_current
  /// The contents are those of the epoch at which the set continues, from an earlier process. If false: zero, or
  /// poisoned if an update was torn. Final after all devices have opened the set: call kept() again.
  bool restored = false;
};

/// The calls of ComputeClient for memory that outlives the process: see KeptSet.
template <class Server, class Client>
class KeptCalls {
 public:
  using Site = std::source_location;

  /// Opens memory of the set on this device, or makes it: persistent, of that size, aligned as any other, counted in
  /// the device's reports and against its limit; free memory of its pools is returned to the device first. A handle of
  /// it is an ordinary one, but its memory may be written only between begin_update and commit: each other write
  /// (launch, copy, view, graph, destination of a collective or transfer) is refused with ServerError Validation.
  /// Writes by `call` and through raw pointers are not seen. Calls with the same name return the same memory. Blocks
  /// for the device and the supervisor. Throws KeptError: Schema if the supervisor holds the set for other devices;
  /// Lost: open the set anew, in another process or after the shutdown of its devices; Size, Descriptors, Limit,
  /// Memory, Supervisor, Forked, Order; and as read().
  template <KeptServer S = Server>
  [[nodiscard]] KeptMemory kept(KeptSet& set, const std::string& name, std::size_t bytes,
                                Site site = Site::current()) const {
    KeptSet::Device& device = open(set, site);
    if (name.empty() || name.starts_with(record_name) || name.size() + 2 > KeeperMessage::max_name)
      throw KeptError(KeptError::Kind::Limit,
                      "the name of kept memory must have 1 to 253 bytes, and not begin with \"(record)\"", site);
    if (const auto found = device.memory.find(name); found == device.memory.end()) {
      set.add(device, name, make(set, device, name, bytes, site), site);
    } else if (found->second.bytes != bytes) {
      refuse_size(set, name, found->second.bytes, bytes, site);
    }
    const KeptSet::Memory& memory = device.memory.at(name);
    return {*memory.handles[set.current_copy(device)], set.is_restored(device, memory)};
  }
  /// The memory with the contents of the last commit. Does not block.
  template <KeptServer S = Server>
  [[nodiscard]] const Handle& kept_current(KeptSet& set, const std::string& name, Site site = Site::current()) const {
    KeptSet::Device& device = set.device(client().device_id(), site);
    return *find(set, device, name, site).handles[set.current_copy(device)];
  }
  /// The memory that an update writes: in the mode InPlace the same. Does not block.
  template <KeptServer S = Server>
  [[nodiscard]] const Handle& kept_next(KeptSet& set, const std::string& name, Site site = Site::current()) const {
    KeptSet::Device& device = set.device(client().device_id(), site);
    return *find(set, device, name, site).handles[set.next_copy(device)];
  }

  /// From here on in stream order an update writes the memory of the set on this device; if the process ends before
  /// commit, the contents are torn (InPlace) or those of the last commit (Double). It replaces an update that was
  /// begun before and not committed. `epoch`: greater than that of the last update, the same on all devices; 0: one
  /// more. Not in a capture: begin the update before a replay, and commit it afterwards. In the mode Double with
  /// several devices, without KeptOptions::collective_between, blocks until all devices have made the commit of the
  /// last update: one thread that updates several devices must have committed on all first. Else does not block. Throws
  /// KeptError Order if `epoch` is not greater, before the state of the set is known, if memory that is held for the
  /// device has not been opened, or if a commit that it waits for fails, or is not queued within the setting
  /// collectives.timeout: then no device can overwrite the last update that all hold, and the set must be opened anew.
  /// Later failures as write.
  template <KeptServer S = Server>
  void begin_update(KeptSet& set, std::uint64_t epoch = 0, Site site = Site::current()) const {
    set.require_state(site);
    KeptSet::Device& device = set.device(client().device_id(), site);
    set.require_complete(device, site);
    if (epoch == 0) epoch = device.last_epoch + 1;
    if (epoch <= device.last_epoch || epoch > KeptMark::max_epoch)
      refuse_order(set, "epoch " + std::to_string(epoch) + " does not follow " + std::to_string(device.last_epoch),
                   site);
    set.wait_for_commits(device, site);
    mark(set, device, {.kind = KeptMarkChange::Kind::Begin, .epoch = epoch, .copy = device.copy}, site);
    device.updating = true;
    device.last_epoch = epoch;
    if (set.mode() == KeptMode::Double) poison_unwritten(set, device, site);
  }
  /// The update is complete: from here on in stream order the contents are those of its epoch. `values`: up to 64 KiB
  /// of the host's state (step, random numbers, position in the data), which KeptState gives back with the epoch; the
  /// supervisor has those of the last 256 commits, so wait for the stream at least that often. If memory of the set is
  /// poisoned, the commit fails, and nothing is marked. In the mode Double kept_current and kept_next change places,
  /// also if the commit fails later: the next update then overwrites the last whole copy. To keep that copy, wait for
  /// the commit (sync), and open the set anew if it has failed; with several devices begin_update waits for it, and is
  /// refused if it has failed. Not in a capture. Blocks at most 200 ms for the supervisor. Throws KeptError: Order if
  /// no update is open, Limit, Supervisor if the supervisor does not take the values; then nothing is marked. Later
  /// failures as launch. With KeptOptions::checksum_every some commits first make checksums of the memory, on the
  /// device.
  template <KeptServer S = Server>
  void commit(KeptSet& set, std::span<const std::byte> values = {}, Site site = Site::current()) const {
    KeptSet::Device& device = set.device(client().device_id(), site);
    if (!device.updating) refuse_order(set, "no update is open", site);
    set.send_values(device, values, site);
    if (set.count_commit(device)) make_checksums(set, device, site);
    mark(set, device, {.kind = KeptMarkChange::Kind::Commit, .epoch = device.last_epoch}, site);
    device.updating = false;
    device.copy = set.next_copy(device);
    set.note_commit(device);
  }

 private:
  static constexpr const char* record_name = KeptSet::record_name;

  [[nodiscard]] const Client& client() const noexcept { return static_cast<const Client&>(*this); }

  [[noreturn]] static void refuse_order(const KeptSet& set, const std::string& why, const Site& site) {
    throw KeptError(KeptError::Kind::Order, "the kept set '" + set.name() + "' is used out of order: " + why, site);
  }
  [[noreturn]] static void refuse_size(const KeptSet& set, const std::string& name, std::uint64_t held,
                                       std::uint64_t wanted, const Site& site) {
    throw KeptError(KeptError::Kind::Size,
                    "memory '" + name + "' of the kept set '" + set.name() + "' has " + std::to_string(held) +
                        " bytes; the requested size is " + std::to_string(wanted),
                    site);
  }
  [[nodiscard]] static const KeptSet::Memory& find(const KeptSet& set, const KeptSet::Device& device,
                                                   const std::string& name, const Site& site) {
    const auto found = device.memory.find(name);
    if (found == device.memory.end()) refuse_order(set, "memory '" + name + "' has not been opened", site);
    return found->second;
  }
  // Opens the record, before any memory.
  KeptSet::Device& open(KeptSet& set, const Site& site) const {
    KeptSet::Device& device = set.device(client().device_id(), site);
    if (device.is_open) return device;
    set.identify(device, Server::kept_key(device.id), site);
    device.record = make(set, device, record_name, KeptRecordMemory::bytes, site, 1);
    device.poison = [client = client()](const Handle& memory, const std::exception_ptr& cause) {
      client.submit(Site::current(), "poison",
                    [binding = memory.binding(), cause](Server& server, const Caller& caller) {
                      server.poison(binding, cause, caller);
                    });
    };
    // On a stream of its own: a read also throws the failures of its stream, and cannot be made during a capture there.
    Client reader = client();
    reader.set_stream(StreamId::allocate());
    device.read_record = [reader = std::move(reader), memory = *device.record.handles[0]] {
      KeptRecord record;
      const auto bytes = reader.read_one(memory.offset_end(KeptRecordMemory::bytes - sizeof(record)));
      std::memcpy(&record, bytes.span().data(), sizeof(record));
      return record;
    };
    mark(set, device, {.kind = KeptMarkChange::Kind::Adopt}, site);
    const auto bytes = client().read_one(*device.record.handles[0], site);
    std::memcpy(&device.found, bytes.span().data(), sizeof(KeptRecord));
    device.checksums.resize(KeptRecordMemory::max_checksums);
    std::memcpy(device.checksums.data(), bytes.span().data() + sizeof(KeptRecord),
                device.checksums.size() * sizeof(KeptChecksum));
    set.opened(device, site);
    return device;
  }

  // Takes over what the supervisor holds under this name, or allocates memory and has the supervisor hold it.
  [[nodiscard]] KeptSet::Memory make(const KeptSet& set, KeptSet::Device& device, const std::string& name,
                                     std::size_t bytes, const Site& site, unsigned copies = 0) const {
    if (copies == 0) copies = set.mode() == KeptMode::Double ? 2 : 1;
    KeptSet::Memory memory;
    memory.bytes = bytes;
    std::vector<std::string> made;
    try {
      for (unsigned copy = 0; copy < copies; ++copy) {
        const std::string key = copies == 1 ? name : name + "/" + std::to_string(copy);
        std::shared_ptr<void> counted = count(bytes, site);
        if (const auto held = set.held(device.key, key)) {
          if (held->bytes != bytes) refuse_size(set, name, held->bytes, bytes, site);
          memory.storage[copy] = adopt(set, device, key, bytes, site);
          memory.adopted_since = std::max(memory.adopted_since.value_or(0), held->epoch);
        } else {
          memory.storage[copy] = Server::make_kept(device.id, bytes, site);
          made.push_back(key);
          set.keep(device, key, bytes, *memory.storage[copy], site);
        }
        memory.storage[copy]->set_count(std::move(counted));
        if (memory.storage[copy]->bytes() < bytes) refuse_size(set, name, memory.storage[copy]->bytes(), bytes, site);
        memory.handles[copy] = lend(memory.storage[copy], bytes, name == record_name ? nullptr : device.guard, site);
        if (set.has_checksums() && name != record_name) check(set, device, key, memory, copy, site);
      }
    } catch (...) {
      for (const std::string& key : made) set.drop(device, key);
      throw;
    }
    return memory;
  }

  // What the supervisor holds under that name. If it is lost, so is all memory of the device.
  [[nodiscard]] static std::shared_ptr<KeptStorage> adopt(const KeptSet& set, const KeptSet::Device& device,
                                                          const std::string& key, std::size_t bytes, const Site& site) {
    try {
      if (key == record_name) Server::require_sound_memory(device.id, site);  // once: the record is opened first
      return Server::adopt_kept(device.id, bytes, set.pieces(device.key, key, site), site);
    } catch (const KeptError& error) {
      if (error.kind() == KeptError::Kind::Lost) set.lose(device);
      throw;
    }
  }

  // Gives the memory a checksum; compares memory that was restored with the one that it has.
  void check(const KeptSet& set, KeptSet::Device& device, const std::string& key, KeptSet::Memory& memory,
             unsigned copy, const Site& site) const {
    memory.checksums[copy] = set.checksum_number(device, key, site);
    if (!memory.adopted_since) return;
    const auto expected = set.expected_sum(device, memory.checksums[copy], copy);
    if (!expected) return;
    const Handle result = client().empty(sizeof(KeptChecksum), site);
    sum({memory.handles[copy]->binding(), memory.bytes, result.binding(), 0, 0}, site);
    KeptChecksum found;
    const auto bytes = client().read_one(result, site);
    std::memcpy(&found, bytes.span().data(), sizeof(found));
    memory.checks[copy] = found.sum == *expected ? KeptSet::Check::Same : KeptSet::Check::Differs;
  }
  // Of what the update has written, before its commit.
  void make_checksums(const KeptSet& set, const KeptSet::Device& device, const Site& site) const {
    const unsigned copy = set.next_copy(device);
    for (const auto& [name, memory] : device.memory) {
      const std::size_t number = memory.checksums[copy];
      const Handle at = device.record.handles[0]->offset_start(KeptRecordMemory::offset_of(number), site);
      sum({memory.handles[copy]->binding(), memory.bytes, at.binding(), device.checksums[number].name,
           device.last_epoch},
          site);
    }
  }
  void sum(KeptSumming summing, const Site& site) const {
    client().submit(site, "checksum", [summing = std::move(summing)](Server& server, const Caller& caller) {
      server.sum_kept(summing, caller);
    });
  }

  [[nodiscard]] std::shared_ptr<void> count(std::size_t bytes, const Site& site) const {
    return client().device_.submit_blocking([bytes, caller = Caller{client().stream_id(), site}](
                                                Server& server) { return server.count_kept(bytes, caller); },
                                            site);
  }

  // A handle of the storage, which lives as long as work uses it.
  [[nodiscard]] Handle lend(const std::shared_ptr<KeptStorage>& storage, std::size_t bytes,
                            std::shared_ptr<const UpdateGuard> guard, const Site& site) const {
    auto owner = std::make_shared<BorrowedMemory>(
        Location{client().device_id(), client().stream_id()}, [storage] { static_cast<void>(storage); },
        std::move(guard));
    return client().lend(storage->address(), bytes, {}, std::move(owner), site);
  }

  // The copy that an update writes holds an older epoch: what the update does not write as a whole must not be
  // committed.
  static void poison_unwritten(const KeptSet& set, const KeptSet::Device& device, const Site& site) {
    const unsigned next = set.next_copy(device);
    for (const auto& [name, memory] : device.memory)
      device.poison(*memory.handles[next], std::make_exception_ptr(KeptError(
                                               KeptError::Kind::Order,
                                               "update " + std::to_string(device.last_epoch) + " of the kept set '" +
                                                   set.name() + "' has not written all of '" + name + "'",
                                               site)));
  }

  void mark(const KeptSet& set, const KeptSet::Device& device, KeptMarkChange change, const Site& site) const {
    change.generation = set.generation();
    change.two_copies = set.mode() == KeptMode::Double;
    KeptMarking marking{device.record.handles[0]->binding(), {}, change, device.guard};
    const bool commits = change.kind == KeptMarkChange::Kind::Commit;
    const unsigned next = set.next_copy(device);
    for (const auto& [name, memory] : device.memory)
      for (unsigned copy = 0; copy < memory.handles.size(); ++copy)
        if (memory.handles[copy] && (!commits || copy == next))
          marking.memory.push_back(memory.handles[copy]->binding());
    client().submit(site, "mark", [marking = std::move(marking)](Server& server, const Caller& caller) mutable {
      server.mark_kept(std::move(marking), caller);
    });
  }
};

}  // namespace cox
