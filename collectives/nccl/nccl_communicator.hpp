#pragma once

#include <coxswain/collectives/nccl/completed_prefix.hpp>
#include <coxswain/collectives/nccl/in_flight_operations.hpp>
#include <coxswain/collectives/nccl/nccl.hpp>
#include <coxswain/collectives/nccl/nccl_creation.hpp>
#include <coxswain/collectives/nccl/nccl_device_resources.hpp>
#include <coxswain/collectives/nccl/nccl_operation.hpp>
#include <coxswain/collectives/sequencer/world_order.hpp>
#include <coxswain/collectives/watch/communicator_number.hpp>
#include <coxswain/device_handle/base/unique_function.hpp>
#include <coxswain/device_handle/queue/adaptive_mutex.hpp>
#include <coxswain/runtime/communication/communication_id.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace cox {

/// What an NcclCommunicator of several processes needs in addition.
struct NcclWorldPart {
  SharedCommunicator communicator;
  CommunicatorNumber number{};  ///< Of the sequence of all ranks.
  std::vector<int> ranks;       ///< Of this process, in the communicator.
  /// Calls `met` when all processes are ready to create the communicators: with null, after which no operation of
  /// several processes is released until end_meeting(); or with the reason why they will not be created. Once, on any
  /// thread. Throws; then `met` is not called.
  std::function<void(UniqueFunction<void(const std::exception_ptr& refusal)> met)> meet;
  std::function<void()> end_meeting;  ///< Call once after `met` was called with null. Does not throw.
  /// Refuses operations that are not released, in all processes. Does not throw.
  std::function<void(const std::exception_ptr& why)> refuse;
  /// Another process has marked an operation of this sequence as failed (NcclExchange::mark). Called for each device of
  /// this process that takes part in the sequence, by its name in it. Does not throw.
  std::function<void(CommunicatorNumber sequence, std::uint64_t operation, const std::exception_ptr& why,
                     DeviceId device)>
      mark;
  /// All operations of the rank up to this one have ended. Does not throw.
  std::function<void(CommunicatorNumber sequence, std::size_t rank, std::uint64_t last)> ended;
  /// A thread that has not returned from NCCL `NcclDevices::leave_within` after the communicators were aborted is taken
  /// to block for ever. Then this is called, which should end the process.
  std::function<void(const std::string& text)> cannot_leave;
};

/// The devices of an NcclCommunicator that belong to this process, and the functions by which it uses them. Ranks, here
/// and in NcclCommunicator, are those of this process, counted from 0 in the order of `devices`.
struct NcclDevices {
  CommunicationId devices;    ///< Of all processes.
  std::vector<int> ordinals;  ///< CUDA runtime device ordinals, by rank.
  /// Opens the devices. They stay open as long as the result exists. Called on a helper thread while what quiesce()
  /// returned is held; may block and throw. The result is destroyed on a helper thread while what quiesce() or
  /// try_quiesce() returned is held, if that was possible in time.
  std::function<std::unique_ptr<NcclDeviceResources>()> open;
  /// As long as the result is held, no operation is launched on some devices but not on the others. Called on a helper
  /// thread; may block and throw.
  std::function<std::shared_ptr<void>()> quiesce;
  /// The same for calls that must be made anyway: returns null if there was no such moment within this time.
  std::function<std::shared_ptr<void>(std::chrono::milliseconds within)> try_quiesce;
  /// Keeps `token` until the work that these devices have been given before the call has completed, or it cannot be
  /// found out whether it has. Any thread; does not block. Throws std::bad_alloc.
  std::function<void(const std::shared_ptr<void>& token)> hold_while_busy = [](const std::shared_ptr<void>&) {};
  /// Whether the process has lost its GPUs. Then NCCL is not called any more.
  std::function<bool()> is_lost;
  /// Called for completed operations of all ranks.
  detail::InFlightOperations::CompletedCallback on_completed;
  std::optional<NcclWorldPart> world = {};  ///< Nothing if all devices belong to this process.
  /// How long NCCL may take to abort or destroy the communicators, or to return from a creation that was aborted. After
  /// this time what quiesce() or try_quiesce() returned is released. See also NcclWorldPart::cannot_leave: for that,
  /// time in which other work of the devices is running does not count, since NCCL waits for it when it frees memory;
  /// but no more of it than the timeout of the communicator.
  std::chrono::milliseconds leave_within{10'000};
};

/// NCCL's communicators of the ranks of a communicator that belong to this process: they are created, aborted and
/// destroyed together. Calls that may block in NCCL run on helper threads, which exist only for them:
/// creation (with first operations of all ranks, so that later operations find them connected, T2), abort and
/// destruction.
///
///     New --devices_open()--> Opening --> Open --created()--> Creating --> Ready --close()--> Dismantling --> Gone
///      |                         |         |                   ^  |          `---abort()------^
///      |                         |         `--close(), abort(), or a creation that fails------|
///      `---------------------created()-------------------------'  |
///                                `--------------------------------`--abort(): the waiting ranks are notified at once;
///                                         communicators that are created later are aborted
///
/// In the state Open, operations of our own kernels can be launched, and NCCL has not been called. Such operations may
/// be in flight while NCCL creates the communicators. In the state Dismantling, in-flight operations complete or are
/// abandoned.
///
/// Creation is aborted when NCCL has not returned from it for the timeout, but a minute at least, or the process has
/// lost its GPUs. Its thread is then left running. The same applies to opening the devices.
///
/// Each rank's device thread launches its own part of an operation. A rank has arrived at an operation when the earlier
/// work on its device has completed. An operation is overdue when some ranks have arrived and no further one has for
/// `timeout`, or when it has not completed `timeout` after all have arrived. Then, and when NCCL reports an error, all
/// ranks are notified. After that all of NCCL's communicators are revoked, then aborted (T8), so that kernels that wait
/// in them end. Any thread.
///
/// If the communicator has ranks of other processes, NCCL is entered only when all processes are ready
/// (NcclWorldPart::meet), and the creation can be cancelled at any time (NcclCreation). A failure that aborts the
/// communicators is reported to the other processes (NcclExchange), and NCCL is aborted only when all of them have
/// marked their launches as failed: after an abort, a kernel of NCCL can complete in another process with wrong
/// results. NCCL does not report that another process is gone; lose_process() must be called.
class NcclCommunicator : public std::enable_shared_from_this<NcclCommunicator> {
 public:
  using Time = NcclOperation::Time;

  /// How long the end of the communicators waits for a moment at which NCCL may be called and memory be freed (T1).
  static constexpr std::chrono::seconds patience_with_launches{60};
  /// How long it waits for abandoned operations to complete; the work before them may still be running. And how long it
  /// then waits for others to release the devices.
  static constexpr std::chrono::seconds patience_with_kernels{10};
  /// For wait_until_destroyed(): communicators that are not destroyed this long after the last operation has completed
  /// most likely will not be. Only an end in which several of these waits take their longest may take longer.
  static constexpr std::chrono::seconds patience_with_end = patience_with_launches + 3 * patience_with_kernels;

  /// NCCL's communicators of a communicator: the existing object if it is still referenced, else a new one.
  [[nodiscard]] static std::shared_ptr<NcclCommunicator> find_or_create(CommunicatorNumber number,
                                                                        const NcclDevices& devices,
                                                                        std::chrono::milliseconds timeout);
  /// Use find_or_create().
  NcclCommunicator(NcclDevices devices, std::chrono::milliseconds timeout);
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;
  ~NcclCommunicator();

  /// Whether the devices are open: operations that NCCL does not do may be launched. True also if opening them has
  /// failed or was aborted, and broken() says why.
  [[nodiscard]] bool devices_open() const noexcept { return devices_open_.load(std::memory_order_acquire); }
  /// Returns whether the devices are open, and starts to open them if that has not begun. If it returns false,
  /// `callback` is called when they are; it must not block. Precondition: all ranks belong to this process. Throws
  /// std::bad_alloc, std::system_error.
  [[nodiscard]] bool devices_open(UniqueFunction<void()> callback);
  /// Whether creation has finished: NCCL has created the communicators, or creation has failed or was aborted, and
  /// broken() says why.
  [[nodiscard]] bool created() const noexcept { return created_.load(std::memory_order_acquire); }
  /// Returns whether creation has finished, and starts it if it has not begun. If it returns false, `callback` is
  /// called when creation has finished; it must not block. Throws std::bad_alloc, std::system_error.
  [[nodiscard]] bool created(UniqueFunction<void()> callback);
  /// Why no further operation may be launched; null if operations may be launched.
  [[nodiscard]] std::exception_ptr broken() const;
  /// The result of NcclDevices::open; null before devices_open(), and in the state Gone. The last reference may be
  /// released on any thread; the devices are closed on a helper thread.
  [[nodiscard]] std::shared_ptr<NcclDeviceResources> opened() const;
  /// Runs `function`, which may block, on a new helper thread, which holds a reference to this object. Throws
  /// std::bad_alloc, std::system_error.
  void run_on_helper_thread(const char* name, UniqueFunction<void()> function);

  /// Held while a rank launches an operation: keeps the communicator and the opened devices alive.
  struct LaunchLock {
    std::unique_lock<std::mutex> in_use;
    detail::NcclComm native;  ///< Null before created().
    std::shared_ptr<NcclDeviceResources> opened;
  };
  /// Precondition: devices_open(). Throws broken() if creation has failed, or the communicators are aborted or
  /// destroyed.
  /// Does not throw only because another rank has called close(): that rank may have completed its part of this
  /// operation. `rank`: of lane().
  [[nodiscard]] LaunchLock begin_launch(std::size_t rank) const;
  /// Launches the rank's part of an operation with NCCL, on a stream of its device. Precondition: created() was true
  /// before begin_launch(). Throws CollectiveError Backend.
  void launch(const LaunchLock& lock, std::size_t rank, const NcclCalls& calls, CUstream_st* stream) const;
  /// The operations of one sequence: of all ranks, or the transfers between one of them and a rank of another process.
  class Lane {
   public:
    /// A rank of this process: its device, and its number in the sequence.
    struct Rank {
      DeviceId device;
      std::size_t in_sequence;
    };
    Lane(CommunicatorNumber number, std::optional<TransferRanks> transfer, std::vector<Rank> ranks,
         detail::InFlightOperations::CompletedCallback on_completed)
        : number_(number),
          transfer_(transfer),
          ranks_(std::move(ranks)),
          ended_(ranks_.size()),
          in_flight_(ranks_.size(), std::move(on_completed)) {}

   private:
    friend class NcclCommunicator;
    const CommunicatorNumber number_;
    const std::optional<TransferRanks> transfer_;
    const std::vector<Rank> ranks_;
    std::vector<detail::CompletedPrefix> ended_;  // by rank
    detail::InFlightOperations in_flight_;
    detail::InFlightOperations::Operations abandoned_;  // moved from in_flight_ by abort()
  };
  /// That of the operations of all ranks.
  [[nodiscard]] Lane& lane() noexcept { return lanes_.front(); }
  /// Finds or creates that of the transfers `transfer`, of which `rank` of this process is one end: rank 0 of the lane.
  /// Throws std::bad_alloc.
  [[nodiscard]] Lane& transfers(CommunicatorNumber number, TransferRanks transfer, Lane::Rank rank,
                                detail::InFlightOperations::CompletedCallback on_completed);
  /// An operation of the rank of the lane has ended without being launched: see NcclWorldPart::ended. Any thread.
  void note_refused(Lane& lane, std::size_t rank, std::uint64_t sequence) noexcept;
  /// Adds what the rank of the lane has launched, in the sequencer's order: moves the launches, and takes the
  /// operations out of them. `completed_before`: the rank's launches up to this number on the communicator are known to
  /// have completed. Throws broken() if the communicator was aborted, or lose_world() has found it idle: then the
  /// launches may never complete, and they are not notified. Throws std::system_error, std::bad_alloc: then nothing has
  /// changed.
  void add(Lane& lane, std::size_t rank, std::span<std::shared_ptr<NcclLaunch>> launches,
           std::uint64_t completed_before);

  /// Notifies all launches that have not completed, then aborts NCCL's communicators. Idempotent.
  void abort(const std::exception_ptr& cause) noexcept;
  /// For a rank that has launched its last operation. NCCL's communicators are destroyed when all ranks have launched
  /// the operations that this rank has launched, and these have completed. Idempotent.
  void close() noexcept;
  /// Blocks until the communicators are destroyed and the helper threads joined, or until the deadline; returns whether
  /// they are. Returns true also if creation was abandoned: its thread is not waited for. Call it after close() or
  /// abort(), but not on one of its helper threads.
  bool wait_until_destroyed(Time deadline) noexcept;

  /// Polls for completed operations. Without this call, they are noticed when later operations are added, and by the
  /// watch, which first polls after half the timeout.
  void poll() noexcept;
  /// Aborts the communicators if an operation is overdue or NCCL reports an error. Returns the time of the next check;
  /// nothing if no operation is in flight. For the watch.
  [[nodiscard]] std::optional<Time> check_deadlines(Time now) noexcept;

  // What happens in the world. These functions apply to the objects that find_or_create() has returned; they start
  // helper threads, and do not block. They throw std::bad_alloc.

  /// The process of rank 0 has made the plan for the creation of this communicator.
  static void receive_plan(const SharedCommunicator& communicator, const detail::NcclCreationPlan& plan);
  /// Another process has marked an operation as failed, or all of them (0): see NcclExchange::mark. Calls `noted` when
  /// this process, and those that it had to notify in turn, have marked it, too.
  static void receive_mark(const SharedSequence& sequence, std::uint64_t operation, const std::exception_ptr& why,
                           UniqueFunction<void()> noted);
  /// The process (from 0) is gone: aborts the communicators with its devices, at the latest 0.1 s later. Operations
  /// that complete until then have succeeded.
  static void lose_process(std::uint16_t process, const std::exception_ptr& why);
  /// The world is lost, or left: aborts the communicators of several processes. If `only_busy`, those that have
  /// operations in flight, or are being created; the others launch nothing any more.
  static void lose_world(const std::exception_ptr& why, bool only_busy);

 private:
  enum class State : std::uint8_t { New, Opening, Open, Creating, Ready, Dismantling, Gone };
  struct Comm {
    std::mutex in_use;  // locked by a launch
    detail::NcclComm native = nullptr;
    detail::NcclComm parent = nullptr;            // of several processes: see NcclCreation
    std::shared_ptr<NcclDeviceResources> opened;  // with its own count, so that launches of ranks do not share one
  };

  /// A helper thread. The last things that it does with the object are to set `done` and to release its reference.
  struct HelperThread {
    std::thread thread;
    bool done = false;
  };

  void start_helper(const char* name, UniqueFunction<void()> function);
  [[nodiscard]] bool reach(State goal, UniqueFunction<void()> callback);
  [[nodiscard]] bool is_creating() const noexcept { return state_ == State::Opening || state_ == State::Creating; }
  void create(State goal) noexcept;
  void make(State goal, std::shared_ptr<NcclDeviceResources>& opened, std::vector<std::unique_ptr<Comm>>& comms);
  void init_all(std::vector<detail::NcclComm>& natives, const NcclDeviceResources& opened) const;
  [[nodiscard]] std::vector<detail::NcclCreation::Comms> create_all(const NcclDeviceResources& opened);
  [[nodiscard]] std::vector<detail::NcclCreation::Comms> create_part(std::shared_ptr<NcclDeviceResources>& opened);
  void meet();
  [[nodiscard]] detail::NcclCreationPlan exchange_plan(const NcclDeviceResources& opened);
  void end_creation() noexcept;
  void leave_creation(const std::exception_ptr& cause) noexcept;
  void give_up(const std::exception_ptr& cause) noexcept;
  void abort_on_helper_thread(const std::exception_ptr& cause, std::chrono::milliseconds patience) noexcept;
  void wait_for_completions(std::chrono::milliseconds at_most) noexcept;
  void receive_mark(const std::optional<TransferRanks>& transfer, std::uint64_t operation,
                    const std::exception_ptr& why) noexcept;
  Lane& add_lane(CommunicatorNumber number, std::optional<TransferRanks> transfer, std::vector<Lane::Rank> ranks,
                 detail::InFlightOperations::CompletedCallback on_completed);
  void note_ended(Lane& lane, std::size_t rank, std::span<const std::uint64_t> sequences) noexcept;
  [[nodiscard]] bool refuse_unless_busy(const std::exception_ptr& why) noexcept;
  [[nodiscard]] bool is_in_flight() const noexcept;
  [[nodiscard]] std::shared_ptr<NcclDeviceResources> open_devices();
  void free_devices(NcclDeviceResources* devices) noexcept;
  void begin_quiescence();
  [[nodiscard]] std::shared_ptr<void> quiesce_to_end(bool has_failed) noexcept;
  void abort_failed_creation(const std::function<void()>& abort, const std::exception_ptr& cause) noexcept;
  [[nodiscard]] std::shared_ptr<void> take_quiescence() noexcept;
  void keep_quiescence(std::shared_ptr<void> quiesced) noexcept;
  [[nodiscard]] bool wait_until_noted() noexcept;
  [[nodiscard]] bool wait_for_nccl(const std::function<bool()>& has_returned,
                                   const std::function<void()>& is_slow) noexcept;
  [[nodiscard]] std::weak_ptr<void> begin_watch_of_other_work() const noexcept;
  [[nodiscard]] std::optional<bool> abandoned_wait_for_other_work() noexcept;
  void dismantle() noexcept;
  void end_native() noexcept;
  void end_in_time(const std::function<void()>& end, const std::function<void()>& report_stuck) noexcept;
  void report_stuck_abort(const std::exception_ptr& cause) noexcept;
  void report_stuck_end(const char* text) noexcept;
  bool wait_for_launched() noexcept;
  void abort_native() noexcept;
  bool wait_for_abandoned() noexcept;
  void destroy() noexcept;
  void forget() noexcept;
  void leak_name() noexcept;
  void begin_dismantling() noexcept;
  void watch();
  void set_broken(const std::exception_ptr& cause) noexcept;
  [[nodiscard]] static std::array<detail::NcclComm, 2> take_natives(Comm& comm) noexcept;
  // Calls `f(lane)` for each lane, without the lock.
  template <class F>
  void for_each_lane(F&& f) noexcept {
    for (auto at = lanes_.begin();;) {  // the first one always exists
      f(*at);
      const std::lock_guard lock(mutex_);
      if (++at == lanes_.end()) return;
    }
  }
  [[nodiscard]] std::optional<detail::InFlightOperations::Oldest> oldest(const Lane& lane) const noexcept;
  [[nodiscard]] std::exception_ptr failure_of_creation(Time now) noexcept;
  [[nodiscard]] std::exception_ptr overdue(Lane& lane, Time now) noexcept;
  [[nodiscard]] std::exception_ptr failure_in_nccl() noexcept;

  static bool for_one(const SharedCommunicator& communicator, const std::function<void(NcclCommunicator&)>& visit);

  const NcclDevices devices_;
  const std::chrono::milliseconds timeout_;
  // NCCL keeps a pointer to it. Set by the thread that creates the communicators.
  std::unique_ptr<const std::string> name_;
  std::vector<std::unique_ptr<Comm>> comms_;  // by rank; not modified once devices_open_ is true

  mutable detail::AdaptiveMutex mutex_;
  std::condition_variable_any changed_;
  // Written with mutex_ held; true also if creation has failed or was aborted.
  std::atomic<bool> devices_open_{false};
  std::atomic<bool> created_{false};
  State state_ = State::New;  // guarded by mutex_, as all below
  bool aborted_ = false;
  bool telling_ = false;  // abort() is notifying the launches
  std::exception_ptr broken_;
  // Written with mutex_ held: nothing may be launched, because creation has failed, it was aborted, or the process has
  // left the world. broken_ is set.
  std::atomic<bool> unusable_{false};
  Time creating_since_{};  // since when the devices are opened, or NCCL creates the communicators; Time::max(): not yet
  std::shared_ptr<detail::NcclCreation> creation_;  // while NCCL creates those of several processes
  std::optional<std::exception_ptr> met_;           // what NcclWorldPart::meet has reported
  std::optional<detail::NcclCreationPlan> plan_;    // from another process
  bool is_noted_ = true;                            // abort() was noted by the other processes
  std::shared_ptr<void> quiesced_;  // while NCCL creates or ends the communicators; released outside the lock
  bool devices_held_ = false;       // there are references to the devices
  bool ended_without_quiescence_ = false;
  bool creation_failed_ = false;     // NCCL aborts what it has created
  bool creation_abandoned_ = false;  // its thread is left running: it is overdue, or the GPUs are lost
  std::shared_ptr<NcclDeviceResources> opened_;
  std::vector<UniqueFunction<void()>> opening_callbacks_;
  std::vector<UniqueFunction<void()>> creation_callbacks_;
  std::list<Lane> lanes_;  // never shrinks
  bool watched_ = false;
  std::list<HelperThread> helpers_;
  std::mutex joining_;  // locked before mutex_, while finished helpers are joined
};

}  // namespace cox
