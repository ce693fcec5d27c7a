#pragma once

#include <coxswain/device_handle/base/call_error.hpp>
#include <coxswain/device_handle/base/call_options.hpp>
#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/device_handle/base/idle_work.hpp>
#include <coxswain/device_handle/base/shutdown.hpp>
#include <coxswain/device_handle/base/stage.hpp>
#include <coxswain/device_handle/base/stream_id.hpp>
#include <coxswain/device_handle/queue/client_lanes.hpp>
#include <coxswain/device_handle/queue/ledger.hpp>
#include <coxswain/device_handle/queue/mailbox.hpp>
#include <coxswain/device_handle/thread/completion.hpp>
#include <coxswain/device_handle/thread/device_thread_options.hpp>
#include <coxswain/device_handle/thread/inline_calls.hpp>
#include <coxswain/device_handle/thread/running_task.hpp>
#include <coxswain/device_handle/thread/service_table.hpp>
#include <coxswain/device_handle/thread/task_trace.hpp>
#include <coxswain/device_handle/thread/wait_graph.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <typeinfo>
#include <utility>
#include <vector>

namespace cox {

/// The thread that owns one stage of one device: it runs the closures of its mailbox in order, and nothing else touches
/// its services.
///
///     run what is ready -> nothing for a while? -> park -> woken by a push -> run what is ready -> ...
///                                        closing? -> run the rest -> close the services -> end
class DeviceThread final : public WaitNode, public std::enable_shared_from_this<DeviceThread> {
 public:
  static constexpr bool is_blocking = false;

  /// Starts the thread. Throws std::system_error if the system has none.
  [[nodiscard]] static std::shared_ptr<DeviceThread> start(DeviceId device, Stage stage);

  ~DeviceThread() override;

  [[nodiscard]] DeviceId device() const noexcept { return device_; }
  [[nodiscard]] Stage stage() const noexcept { return stage_; }
  [[nodiscard]] const DeviceThreadOptions& options() const noexcept { return options_; }
  [[nodiscard]] ServiceTable& services() noexcept { return services_; }

  // ---- any thread ----------------------------------------------------------------------------------------------

  [[nodiscard]] bool on_this_thread() const noexcept { return current_ == this; }

  /// Queues the task that `make()` returns with the caller's StreamId. Blocks only under QueuePolicy::Block at
  /// capacity, and never on a device thread; with `options`, no longer than they allow. Returns whether it had to wake
  /// the device thread. Throws CallError Closed, Forked, QueueFull, and with options Cancelled, Expired; then `make`
  /// was not called.
  template <TaskMaker Make, class... Options>
  bool post(Make&& make, const Options&... options) {
    const TaskOps& ops = task_ops<std::invoke_result_t<Make&>>;
    const Place place = begin(ops, options...);
    build_task(place.object, make, [&] { mailbox_.abandon(place.lane, ops, place.object); });
    return mailbox_.commit(place.lane, ops, StreamId::current().value) == PushResult::Woke;
  }

  /// For calls that are made inside a task; see InlineCalls.
  using Boxed = BoxedTask<BlockPool>;
  template <TaskMaker Make>
  [[nodiscard]] Boxed box(Make&& make) {
    return Boxed::of(make, mailbox_.pool());
  }

  [[nodiscard]] Statistics statistics() const;
  [[nodiscard]] const RunningTask& running() const noexcept { return running_; }
  void count_stall() noexcept { ledger_.stalled(); }

  /// Refuses new calls from now on (L4).
  void close() noexcept { mailbox_.close(); }

  /// In a forked child: refuses new calls; the thread does not exist here.
  void mark_forked() noexcept {
    mailbox_.mark_forked();
    if (on_this_thread()) current_ = nullptr;  // forked inside a task
  }

  /// Whether a join has taken over from it, stuck in a task. Any thread.
  [[nodiscard]] bool abandoned() const noexcept { return custody_.load(std::memory_order_acquire) == Custody::Taken; }
  /// After close() of each of them: waits until the threads have ended; from `deadline` on, makes them discard what has
  /// not started, and takes over from those that are stuck. Returns the worst outcome. Once per thread. Not on one of
  /// them. Blocks, at most until a second after `deadline` if all are stuck, however many they are.
  static ShutdownOutcome join(std::vector<std::shared_ptr<DeviceThread>> threads,
                              std::chrono::steady_clock::time_point deadline);

  // ---- this device thread --------------------------------------------------------------------------------------

  /// The device thread that is calling, or nullptr.
  [[nodiscard]] static DeviceThread* current() noexcept { return current_; }

  /// The cell of S on the calling device thread, where it has been built.
  template <class S>
  [[nodiscard]] static ServiceCell<S>& cell_here() {
    static constinit thread_local ServiceCell<S>* cell = nullptr;
    if (cell == nullptr) [[unlikely]]
      cell = current_->services_.find<S>();
    return *cell;
  }

  /// Names the task that is running for the stall detector.
  static void name_running(const char* label, const std::source_location& site) noexcept {
    current_->running_.name(label, site);
  }

  /// The same for whoever traces; see name_operation().
  void name_operation(const char* name) noexcept;

  /// From the next time on that it is idle, this thread looks for work at least that long before it parks. For a
  /// service whose clients come back after a while.
  void spin_at_least(std::chrono::nanoseconds limit) noexcept { idle_spin_ = std::max(options_.spin, limit); }

  /// Calls `function(context)` on this thread, once, when the row of tasks of the running one's type has ended: before
  /// it runs a task of another type, or as soon as it finds none. For what tasks that come one behind the other had
  /// better do together; it delays nothing that others have submitted in between. A later call replaces an earlier one.
  /// Inside a task, but not inside exclusive(): what runs there may wait for it.
  void at_end_of_row(void (*function)(void* context) noexcept, void* context) noexcept {
    row_ = {running_.type(), function, context};
  }

  /// Does `work` while the thread finds no task, until that is done or the next task comes. It ends what was being done
  /// before. Inside a task, but not inside exclusive(). `work` stays until its end() is called.
  void while_idle(IdleWork& work) noexcept {
    end_idle_work();
    idle_work_ = &work;
  }

  /// Accounts for a task that runs inside another one.
  void account_inline(Outcome outcome) noexcept {
    ledger_.accepted_inline();
    ledger_.ended(outcome);
  }

  /// Calls of this thread's services run inline while this lives. Nests.
  class ExclusiveScope {
   public:
    explicit ExclusiveScope(DeviceThread& thread) noexcept : thread_(thread), inner_(thread.inline_calls_) {
      ++thread_.exclusive_depth_;
    }
    ~ExclusiveScope() { --thread_.exclusive_depth_; }
    ExclusiveScope(const ExclusiveScope&) = delete;
    ExclusiveScope& operator=(const ExclusiveScope&) = delete;

   private:
    DeviceThread& thread_;
    InlineCalls::Level inner_;
  };
  [[nodiscard]] bool exclusive() const noexcept { return exclusive_depth_ != 0; }
  [[nodiscard]] InlineCalls& inline_calls() noexcept { return inline_calls_; }

  /// The device whose cells cell_here() finds: on a device thread there is only one.
  struct CurrentScope {
    explicit CurrentScope(DeviceThread&) noexcept {}
  };

 private:
  // Who may use the consumer half of the mailbox: this thread, until join() has taken it from a stuck one.
  enum class Custody : std::uint8_t { Kept, Requested, Taken };

  DeviceThread(DeviceId device, Stage stage, DeviceThreadOptions options);

  // The lane that a task goes to, and where it is to be built.
  struct Place {
    Mailbox::Lane& lane;
    void* object;
  };

  template <class... Options>
  [[gnu::always_inline]] Place begin(const TaskOps& ops, const Options&... options) {
    if (Mailbox::Lane* const lane = ClientLanes::find(serial_)) [[likely]] {
      if (void* const object = mailbox_.begin_fast(*lane, ops)) [[likely]]
        return {*lane, object};
    }
    return begin_slow(ops, options...);
  }
  Place begin_slow(const TaskOps& ops);
  Place begin_slow(const TaskOps& ops, const CallOptions& options);
  Place begin_slow(const TaskOps& ops, Room room);

  // What is due when no more tasks of that type come.
  struct Row {
    const std::type_info* type = nullptr;
    void (*end)(void* context) noexcept = nullptr;  // null: nothing is due
    void* context = nullptr;
  };

  void await_room(const CallOptions& options);
  void main();
  void prepare_thread() const noexcept;
  bool run_until_closing();
  bool spin(bool slept);
  std::size_t run_ready();
  bool run(const Mailbox::Item& item);
  void end_row() noexcept;
  bool end_row_when_idle() noexcept;
  void end_idle_work() noexcept {
    if (IdleWork* const work = std::exchange(idle_work_, nullptr)) work->end();
  }
  std::uint64_t begin_trace(const Mailbox::Item& item, const TaskTracer& tracer) noexcept;
  void end_trace(const Mailbox::Item& item, Outcome outcome, std::uint64_t start, std::uint64_t end) noexcept;
  bool still_has_custody() noexcept;
  bool keep_custody() noexcept;
  void finish();
  void discard_rest() noexcept;
  bool take_over_if_stuck();
  bool take_over();
  [[noreturn]] void throw_refused(PushResult result) const;

  static inline constinit thread_local DeviceThread* current_ = nullptr;

  const DeviceId device_;
  const Stage stage_;
  const DeviceThreadOptions options_;
  std::chrono::nanoseconds idle_spin_ = options_.spin;
  const std::uint64_t serial_ = ClientLanes::next_serial();
  Mailbox mailbox_;
  ServiceTable services_;
  Ledger ledger_;
  RunningTask running_;
  Row row_;
  IdleWork* idle_work_ = nullptr;
  const bool timing_;
  bool time_next_ = true;  // the first task after the thread has slept
  unsigned untimed_ = 0;   // tasks since the last one that was timed
  int exclusive_depth_ = 0;
  InlineCalls inline_calls_;
  const TaskTracer* tracer_ = nullptr;  // of the task that is running; null: it is not traced
  const char* operation_ = nullptr;     // of the same
  std::uint64_t traced_until_ = 0;      // when the last traced task ended
  std::uint64_t tracers_seen_ = 0;
  std::uint32_t number_ = 0;  // of this thread, by the system
  std::atomic<bool> discarding_{false};
  std::uint64_t progress_ = 0;  // of join(): the serial of the running task, and since when it has been the same
  std::chrono::steady_clock::time_point stuck_since_{};
  std::atomic<Custody> custody_{Custody::Kept};
  Completion ended_;
  std::thread thread_;
};

}  // namespace cox
