#pragma once

#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/runtime/handle/handle.hpp>
#include <coxswain/runtime/handle/managed_memory.hpp>
#include <coxswain/runtime/kept/keeper_connection.hpp>
#include <coxswain/runtime/kept/kept_agreement.hpp>
#include <coxswain/runtime/kept/kept_checksum.hpp>
#include <coxswain/runtime/kept/kept_record.hpp>
#include <coxswain/runtime/kept/kept_state.hpp>
#include <coxswain/runtime/kept/kept_storage.hpp>
#include <coxswain/runtime/memory/borrowed_memory.hpp>

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <vector>

namespace cox {

/// What an update of kept memory writes.
enum class KeptMode : std::uint8_t {
  InPlace,  ///< The memory itself. A process that ends in the middle of an update leaves torn contents.
  /// A second copy: each memory has two, of which commit makes the written one the current one. The contents of the
  /// last commit are always whole. Takes twice the memory; an update must write all of it.
  Double,
};

struct KeptOptions {
  /// What the contents mean: a version of the program's state, sizes, types. A supervisor gives memory only to a
  /// process with the same text. At most 4,096 bytes.
  std::string schema{};
  KeptMode mode = KeptMode::InPlace;
  /// In the mode Double no device may begin an update before all have committed the last one: else none may be left
  /// that all hold. So with several devices begin_update waits for these commits. True: a collective of all devices of
  /// the set lies between any two updates, so it need not. Devices of other processes are not waited for: in a world
  /// such a collective must lie between in any case.
  bool collective_between = false;
  /// Every n-th commit, counted for each device from the opening of the set, makes checksums of all its allocations
  /// there (in the mode Double of the copies that the update has written), on the device: it reads them once. The next
  /// process compares what has them before the set is reported as whole. They find writes after the commit, not what
  /// the update itself has written. 0: none. At most KeptRecordMemory::max_checksums allocations of a device (in the
  /// mode Double each copy is one).
  std::uint64_t checksum_every = 0;
  /// KeptState::suspect is set after so many runs in a row without a commit.
  std::uint64_t suspect_after = 2;
};

/// The allocations of one state that outlives the process, on the devices that share it. `cox run` holds them: after a
/// fault, a signal or an exit the next process finds them where the last commit left them. Without `cox run` they are
/// ordinary allocations, and end with the process. docs/kept-memory.md has the rules.
///
/// The memory is made and used by the client of each device: ComputeClient::kept, begin_update, commit. Functions may
/// be called by any thread, those for one device by one thread at a time. The set must outlive the last use of its
/// memory by begin_update and commit; handles may outlive it.
class KeptSet {
 public:
  using Site = std::source_location;

  /// Opens the set in this process. Blocks for the supervisor. `name`: 1 to 255 bytes. `devices`: at least one, none
  /// twice. A set that was destroyed can be opened again in this process; with a supervisor only if no handle and no
  /// queued work used its memory when it was destroyed, as after the shutdown of its devices. Throws KeptError: Forked,
  /// InUse, Schema (also for another number of devices), Supervisor, Limit, Order.
  KeptSet(std::string name, std::vector<DeviceId> devices, KeptOptions options = {}, Site site = Site::current());
  KeptSet(const KeptSet&) = delete;
  KeptSet& operator=(const KeptSet&) = delete;
  ~KeptSet();

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] const std::vector<DeviceId>& devices() const noexcept { return ids_; }
  [[nodiscard]] KeptMode mode() const noexcept { return options_.mode; }
  /// What the memory held when this process opened it. Throws KeptError Order until ComputeClient::kept has been called
  /// on each device of the set; with checksums, until all memory that is held has been opened.
  [[nodiscard]] KeptState state(Site site = Site::current()) const;
  /// For a set that several processes of a world have parts of, each with its own devices: this process continues at
  /// the epoch that all have agreed on, which may be older than that of state(). state(), ComputeClient::kept and
  /// kept_current then report and return the contents of that epoch, and the next update has a greater epoch than any
  /// process has begun. With epoch 0 the contents belong to no update of all processes: the state is Torn, unless it is
  /// Empty. Call it before the first update. Throws KeptError Order: as state(); if an update has been begun; if the
  /// agreement is not one with this process.
  void continue_at(const KeptAgreement& agreement, Site site = Site::current());
  /// The supervisor frees the set's memory, such as that of an earlier layout, as far as this process has not opened
  /// it; the rest ends with the process. Afterwards the set cannot be used: open it anew. Blocks for the supervisor.
  void forget(Site site = Site::current());

  /// The name of the record: no other memory may have it.
  static constexpr const char* record_name = "(record)";

  // For ComputeClient
  // ---------------------------------------------------------------------------------------------------

  /// The comparison of memory with its checksum.
  enum class Check : std::uint8_t {
    None,  ///< There is no checksum of these contents.
    Same,
    Differs,
  };
  /// One allocation of one device; in the mode Double one for each copy.
  struct Memory {
    std::array<Check, 2> checks{};
    std::array<std::size_t, 2> checksums{};  ///< their numbers in the record; only with checksum_every
    std::array<std::shared_ptr<KeptStorage>, 2> storage;
    std::array<std::optional<Handle>, 2> handles;
    std::size_t bytes = 0;
    /// Of memory that an earlier process made: the newest epoch at that time.
    std::optional<std::uint64_t> adopted_since;
  };
  /// The set on one device.
  struct Device {
    DeviceId id;
    std::string key;  ///< of the device, in messages to the supervisor
    Memory record;
    std::shared_ptr<UpdateGuard> guard;
    KeptRecord found;                     ///< the record as it was when the device was opened
    std::vector<KeptChecksum> checksums;  ///< those of the record: as they were then, and the names of new memory
    std::uint64_t commits = 0;            ///< of this process
    bool is_open = false;
    bool is_complete = false;      ///< all memory that the supervisor holds for the device has been opened
    bool updating = false;         ///< begin_update has been called, commit not
    std::uint64_t last_epoch = 0;  ///< of the last begin_update
    unsigned copy = 0;             ///< Double: the current copy
    /// The epoch of the current copy, if its commit succeeds; 0: of no common update. Guarded by the set's mutex.
    std::uint64_t committed = 0;
    std::map<std::string, Memory> memory;
    /// Poisons memory of this device. Any thread.
    std::function<void(const Handle& memory, const std::exception_ptr& cause)> poison;
    /// The record after all changes that are queued now. Blocks for them; any thread but a device thread. Throws what
    /// they have failed with.
    std::function<KeptRecord()> read_record;
  };

  /// Throws KeptError Order if the device does not belong to the set, or after forget().
  [[nodiscard]] Device& device(DeviceId id, Site site);
  /// Sets the key of the device, before any memory of it is made. Throws KeptError Schema if the supervisor holds
  /// memory of the set for other devices: it stays held for them.
  void identify(Device& device, std::string key, Site site);
  /// Throws KeptError Order if the supervisor holds memory for the device that this process has not opened: a commit
  /// would declare that memory whole, too.
  void require_complete(Device& device, Site site) const;
  /// Blocks until all devices have made the last commit of this one, if its next update must wait for that (mode
  /// Double). Throws KeptError Order if one has not queued it after collectives.timeout, or if it has failed on one:
  /// then the last epoch that all hold stays as it is.
  void wait_for_commits(const Device& device, Site site) const;
  /// The commit of the device's last update is queued.
  void note_commit(Device& device);
  /// Throws as state(), which copies what was found.
  void require_state(Site site) const;
  [[nodiscard]] bool has_checksums() const noexcept { return options_.checksum_every != 0; }
  /// Counts a commit of the device. Returns whether it makes checksums.
  [[nodiscard]] bool count_commit(Device& device) const noexcept {
    return has_checksums() && ++device.commits % options_.checksum_every == 0;
  }
  /// The number of the checksum of memory with that name; a free one if there is none yet. Throws KeptError Limit.
  [[nodiscard]] std::size_t checksum_number(Device& device, const std::string& name, Site site) const;
  /// The sum that memory with that checksum must have as the copy, as the record was found; std::nullopt: not known.
  [[nodiscard]] std::optional<std::uint64_t> expected_sum(const Device& device, std::size_t checksum,
                                                          unsigned copy) const noexcept;
  /// The copy with the contents of the last commit.
  [[nodiscard]] unsigned current_copy(const Device& device) const;
  /// The copy that an update writes.
  [[nodiscard]] unsigned next_copy(const Device& device) const {
    return mode() == KeptMode::Double ? current_copy(device) ^ 1U : 0U;
  }
  [[nodiscard]] std::uint64_t generation() const noexcept { return held_.generation; }
  /// What the supervisor holds under that name; std::nullopt: nothing.
  [[nodiscard]] std::optional<HeldSet::Memory> held(const std::string& key, const std::string& name) const;
  /// Takes the pieces of it from the supervisor.
  [[nodiscard]] KeptPieceSource pieces(const std::string& key, const std::string& name, Site site) const;
  /// Gives new memory to the supervisor, if there is one.
  void keep(const Device& device, const std::string& name, std::uint64_t bytes, KeptStorage& storage, Site site) const;
  /// The supervisor drops memory that could not be opened as a whole. Does not throw.
  void drop(const Device& device, const std::string& name) const noexcept;
  /// All that the supervisor has held for the device is lost: it drops it, and reports that to the next process. Does
  /// not throw.
  void lose(const Device& device) const noexcept;
  /// Gives host values of an update to the supervisor. Throws KeptError Limit for more than 64 KiB, Supervisor if it
  /// does not take them within 200 ms.
  void send_values(const Device& device, std::span<const std::byte> values, Site site) const;
  /// The device is open: its record and functions are set. Once all are, the state is known, and memory that is torn is
  /// poisoned.
  void opened(Device& device, Site site);
  /// Memory of an open device has been opened.
  void add(Device& device, const std::string& name, Memory memory, Site site);
  /// KeptMemory::restored.
  [[nodiscard]] bool is_restored(const Device& device, const Memory& memory) const;

 private:
  [[nodiscard]] KeptState state_of_records() const;
  // These are called with the mutex held.
  void require_opened(Device& device, Site site) const;
  void set_committed(std::uint64_t epoch);
  void finish_checks(Site site) const;
  void find_state(Site site) const;
  void report_found(KeptState& state, Site site) const;
  void select_epoch(KeptState& state, std::uint64_t epoch, Site site);
  void set_values(KeptState::Device& state, const Device& device, std::uint64_t epoch) const;
  [[nodiscard]] bool is_idle() const noexcept;
  [[nodiscard]] bool is_committed(const Device& device, const Memory& memory) const;
  void poison_if_torn(const Device& device, const Memory& memory, Site site) const;
  void check_device(KeptState::Device& state, const Device& device, Site site) const;

  const std::string name_;
  const std::vector<DeviceId> ids_;
  const KeptOptions options_;
  const std::shared_ptr<KeeperConnection> keeper_;  // null: there is no supervisor
  HeldSet held_;
  mutable std::mutex mutex_;                   // guards what follows
  mutable std::condition_variable committed_;  // a device has queued a commit
  bool forgotten_ = false;
  std::vector<std::unique_ptr<Device>> devices_;
  mutable std::optional<KeptState> state_;
  mutable bool checked_ = false;  // what has checksums has been compared
};

}  // namespace cox
