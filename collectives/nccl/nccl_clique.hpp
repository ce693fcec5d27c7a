#pragma once

#include <coxswain/collectives/nccl/in_flight_operations.hpp>
#include <coxswain/collectives/nccl/nccl.hpp>
#include <coxswain/collectives/nccl/nccl_device_resources.hpp>
#include <coxswain/collectives/nccl/nccl_operation.hpp>
#include <coxswain/collectives/watch/communicator_number.hpp>
#include <coxswain/device_handle/base/unique_function.hpp>
#include <coxswain/device_handle/queue/adaptive_mutex.hpp>
#include <coxswain/runtime/communication/communication_id.hpp>

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
#include <vector>

namespace cox {

/// The devices of a clique, and how it reaches them.
struct NcclDevices {
  CommunicationId devices;
  std::vector<int> ordinals;  ///< As the CUDA runtime counts them, by rank.
  /// Opens them, as long as somebody holds what is returned. Called on a thread of the clique's; may block and throw.
  std::function<std::shared_ptr<NcclDeviceResources>()> open;
  /// Nothing is half launched as long as somebody holds what is returned. Called on a thread of the clique's; may block
  /// and throw.
  std::function<std::shared_ptr<void>()> quiesce;
  /// Whether the process has lost its GPUs: NCCL is not called any more.
  std::function<bool()> is_lost;
  /// Called for operations that have completed.
  detail::InFlightOperations::CompletedCallback on_completed;
};

/// NCCL's communicators of all ranks of a group. The ranks are of this process, so their communicators are made, given
/// up and destroyed together. What may block in NCCL has threads of its own, which exist for that alone: creation, with
/// a first meeting of all ranks, so that later operations find them connected (T2), giving up and destroying.
///
///     New --created()--> Creating --> Ready --close()--> Dismantling (what is in flight completes, or is abandoned)
///     --> Gone
///                   \                    \---abort()-----^
///                    `--abort(): the ranks are notified at once; what is made later is aborted
///
/// Creation is aborted when NCCL has not come back from it for the timeout, and a minute at least: its thread is left
/// to itself.
///
/// Else each rank's device thread launches its part itself. An operation is overdue when the work before it has ended
/// on some ranks' devices, but for `timeout` not on the others', or when it has not ended `timeout` after that. Then,
/// as when NCCL tells of an error, all ranks are told; after that all of NCCL's communicators are revoked, then aborted
/// (T8), so that kernels which wait in them end. Any thread.
class NcclClique : public std::enable_shared_from_this<NcclClique> {
 public:
  using Time = NcclOperation::Time;

  /// That of a communicator: the one that somebody holds, else a new one.
  [[nodiscard]] static std::shared_ptr<NcclClique> find_or_create(CommunicatorNumber number, const NcclDevices& devices,
                                                                  std::chrono::milliseconds timeout);
  /// Use find_or_create().
  NcclClique(NcclDevices devices, std::chrono::milliseconds timeout);
  NcclClique(const NcclClique&) = delete;
  NcclClique& operator=(const NcclClique&) = delete;
  ~NcclClique();

  /// Whether NCCL has made the communicators, or will not: then broken() says why.
  [[nodiscard]] bool created() const noexcept { return created_.load(std::memory_order_acquire); }
  /// The same. Begins to make them. If it returns false, `callback` is called when that has changed; it must not block.
  /// Throws std::bad_alloc, std::system_error.
  [[nodiscard]] bool created(UniqueFunction<void()> callback);
  /// Why nothing new is to be launched any more; null: it may be.
  [[nodiscard]] std::exception_ptr broken() const;
  /// What open() has returned; null before it is created(), and when it is gone.
  [[nodiscard]] std::shared_ptr<NcclDeviceResources> opened() const;
  /// What may block, on a thread of its own, which holds the clique. Throws std::bad_alloc, std::system_error.
  void run_on_helper_thread(const char* name, UniqueFunction<void()> function);

  /// Held while a rank launches something: what the clique has opened stays.
  struct LaunchLock {
    std::unique_lock<std::mutex> in_use;
    detail::NcclComm native;
    std::shared_ptr<NcclDeviceResources> opened;
  };
  /// Once it has been created. Throws broken() if that has failed, or the communicators are given up or gone: not yet
  /// when another rank has closed it, whose part of this may be over.
  [[nodiscard]] LaunchLock begin_launch(std::size_t rank) const;
  /// Launches the rank's part, by NCCL, on a stream of its device. Throws CollectiveError Backend.
  void launch(const LaunchLock& lock, std::size_t rank, const NcclCalls& calls, CUstream_st* stream) const;
  using Part = detail::InFlightOperations::Part;
  /// The rank's parts have been launched, in the sequencer's order; its parts up to number `completed_before` on the
  /// communicator are known to have ended. Throws broken() when it was given up: then their ends may never come, and
  /// they are not told; std::system_error, std::bad_alloc: then nothing has changed.
  void add(std::size_t rank, std::span<Part> parts, std::uint64_t completed_before);

  /// Tells all who have launched what has not ended, then gives NCCL's communicators up. Idempotent.
  void abort(const std::exception_ptr& cause) noexcept;
  /// A rank that has launched all its parts asks for nothing more. NCCL's communicators are destroyed when all ranks
  /// have launched what it has, and that has ended. Idempotent.
  void close() noexcept;
  /// Blocks until they are destroyed and the clique's threads joined, or the deadline has come; returns whether they
  /// are. After close() or abort(). Not on a thread of the clique's.
  bool wait_until_destroyed(Time deadline) noexcept;

  /// Polls what has completed: later operations and the watch, which first polls after half the timeout, do so
  /// otherwise.
  void poll() noexcept;
  /// Aborts what is overdue, and asks NCCL for errors. Returns when to check again; nothing: nothing is in flight. For
  /// the watch.
  [[nodiscard]] std::optional<Time> check_deadlines(Time now) noexcept;

 private:
  enum class State : std::uint8_t { New, Creating, Ready, Dismantling, Gone };
  struct Comm {
    std::mutex in_use;  // by a launch
    detail::NcclComm native = nullptr;
    std::shared_ptr<NcclDeviceResources> opened;  // counted by itself: no two ranks touch one count at each launch
  };

  /// A thread of the clique's. Setting `done` is the last that it does with the clique.
  struct HelperThread {
    std::thread thread;
    bool done = false;
  };

  void start_helper(const char* name, UniqueFunction<void()> function);
  void create() noexcept;
  void begin_quiescence();
  void dismantle() noexcept;
  bool wait_for_launched() noexcept;
  void abort_native() noexcept;
  bool wait_for_abandoned() noexcept;
  void destroy() noexcept;
  void forget() noexcept;
  void begin_dismantling() noexcept;
  void watch();
  void set_broken(const std::exception_ptr& cause) noexcept;
  [[nodiscard]] static detail::NcclComm take_native(Comm& comm) noexcept;
  [[nodiscard]] std::exception_ptr overdue(Time now);
  [[nodiscard]] std::exception_ptr failure_in_nccl() noexcept;

  const NcclDevices devices_;
  const std::chrono::milliseconds timeout_;
  std::vector<std::unique_ptr<Comm>> comms_;  // by rank; once state_ is Ready they stay

  mutable detail::AdaptiveMutex mutex_;
  std::condition_variable_any changed_;
  std::atomic<bool> created_{false};  // written with mutex_ held: it has been, or never will be
  State state_ = State::New;          // guarded by mutex_, as all below
  bool aborted_ = false;
  bool telling_ = false;  // abort() tells those who have launched
  std::exception_ptr broken_;
  std::atomic<bool> unusable_{false};  // written with mutex_ held: it was not made, or is given up; there is broken_
  Time creating_since_{};
  std::shared_ptr<void> quiesced_;   // while NCCL makes the communicators; released outside the lock
  bool creation_timed_out_ = false;  // NCCL has not come back from making them
  std::shared_ptr<NcclDeviceResources> opened_;
  std::vector<UniqueFunction<void()>> creation_callbacks_;
  detail::InFlightOperations in_flight_;
  detail::InFlightOperations::Operations abandoned_operations_;  // of those: that may not have ended yet
  bool watched_ = false;
  std::list<HelperThread> helpers_;
  std::mutex joining_;  // before mutex_: of threads that are over
};

}  // namespace cox
