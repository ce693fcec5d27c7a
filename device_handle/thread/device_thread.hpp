#pragma once

#include <coxswain/device_handle/base/call_error.hpp>
#include <coxswain/device_handle/base/call_options.hpp>
#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/device_handle/base/shutdown.hpp>
#include <coxswain/device_handle/base/stage.hpp>
#include <coxswain/device_handle/base/stream_id.hpp>
#include <coxswain/device_handle/observe/task_observer.hpp>
#include <coxswain/device_handle/queue/client_lanes.hpp>
#include <coxswain/device_handle/queue/mailbox.hpp>
#include <coxswain/device_handle/service/completion.hpp>
#include <coxswain/device_handle/service/device_base.hpp>
#include <coxswain/device_handle/service/device_thread_options.hpp>
#include <coxswain/device_handle/thread/take_over.hpp>

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <source_location>
#include <span>
#include <thread>
#include <type_traits>
#include <vector>

namespace cox {

/// The thread that owns one stage of one device. It runs the closures of its mailbox in order, and no other thread
/// touches its services.
///
///     run what is ready -> nothing for a while? -> park -> woken by a push -> run what is ready -> ...
///                                        closing? -> run the rest -> close the services -> end
class DeviceThread final : public DeviceBase {
 public:
  static constexpr bool is_blocking = false;

  /// Starts the thread. Throws std::system_error if the system cannot create one.
  [[nodiscard]] static std::shared_ptr<DeviceThread> start(DeviceId device, Stage stage);

  ~DeviceThread() override;

  // ---- any thread ----------------------------------------------------------------------------------------------

  [[nodiscard]] bool on_this_thread() const noexcept override { return current_ == this; }

  /// Enqueues the task that `make()` returns, with the caller's StreamId. Blocks only at capacity under
  /// QueuePolicy::Block, and never on a device thread; with `options`, no longer than they allow. Returns whether it
  /// had to wake the device thread. Throws CallError Closed, Forked, QueueFull, and with options also Cancelled,
  /// Expired; if a source_location is passed, the error has it as its site. If it throws these, `make` was not called.
  template <TaskMaker Make, class... Options>
    requires std::constructible_from<PostOptions, const Options&...>
  bool post(Make&& make, const Options&... options) {
    const TaskOps& ops = task_ops<std::invoke_result_t<Make&>>;
    const Reservation reservation = begin(ops, options...);
    build_task(reservation.object, make, [&] { mailbox_.abandon(reservation.lane, ops, reservation.object); });
    return mailbox_.commit(reservation.lane, ops, StreamId::current().value) == PushResult::Woke;
  }

  /// Boxes the task of a call that is made inside another task; see InlineCalls.
  using Boxed = BoxedTask<BlockPool>;
  template <TaskMaker Make>
  [[nodiscard]] Boxed box(Make&& make) {
    return Boxed::make(make, mailbox_.pool());
  }

  [[nodiscard]] Statistics statistics() const;
  [[nodiscard]] const RunningTask& running() const noexcept { return observer_.running(); }
  void count_stall() noexcept { counters_.count_stall(); }

  void close() noexcept override { mailbox_.close(); }
  void mark_forked() noexcept override {
    mailbox_.mark_forked();
    if (on_this_thread()) current_ = nullptr;  // forked inside a task
  }

  /// Whether a join has taken over from this thread because it was stuck in a task. Any thread.
  [[nodiscard]] bool abandoned() const noexcept { return take_over_.abandoned(); }
  /// Called after close() of each of the threads. Waits until the threads have ended. From `deadline` on, makes them
  /// discard the tasks that have not started, and takes over from threads that are stuck. Returns the worst outcome.
  /// Called once per thread, and not on one of them. Blocks until one second after `deadline` at most, if all are
  /// stuck, however many there are. `late`: the same threads, in a vector that it can use, so that it needs no memory.
  static ShutdownOutcome join(std::vector<std::shared_ptr<DeviceThread>> late,
                              std::span<const std::shared_ptr<DeviceThread>> threads,
                              std::chrono::steady_clock::time_point deadline);

  // ---- this device thread --------------------------------------------------------------------------------------

  /// The calling device thread, or nullptr.
  [[nodiscard]] static DeviceThread* current() noexcept { return static_cast<DeviceThread*>(current_); }

  /// The cell of S on the calling device thread. It must have been built.
  template <class S>
  [[nodiscard]] static ServiceCell<S>& current_cell() {
    static constinit thread_local ServiceCell<S>* cell = nullptr;
    if (cell == nullptr) [[unlikely]]
      cell = current()->services_.template find<S>();
    return *cell;
  }

  /// Names the running task for the stall detector.
  static void name_running(const char* label, const std::source_location& site) noexcept {
    current()->observer_.name(label, site);
  }

  /// For inline devices: selects the device whose cells current_cell() finds. No effect on a device thread.
  struct CurrentScope {
    explicit CurrentScope(DeviceThread&) noexcept {}
  };

 private:
  friend void detail::name_traced_operation(const char* name) noexcept;

  DeviceThread(DeviceId device, Stage stage, DeviceThreadOptions options);

  // The lane of a task, and the address at which the task is to be built.
  struct Reservation {
    Mailbox::Lane& lane;
    void* object;
  };

  template <class... Options>
  [[gnu::always_inline]] Reservation begin(const TaskOps& ops, const Options&... options) {
    if (Mailbox::Lane* const lane = ClientLanes::find(serial_)) [[likely]] {
      if (void* const object = mailbox_.begin_fast(*lane, ops)) [[likely]]
        return {*lane, object};
    }
    return begin_slow(ops, PostOptions(options...));
  }
  Reservation begin_slow(const TaskOps& ops, const PostOptions& options);

  void wait_for_space(const CallOptions& options);
  void main();
  bool run_until_closing();
  bool spin(bool slept);
  std::size_t run_ready();
  bool run(const Mailbox::Item& item);
  bool end_batch_when_idle() noexcept;
  void queue_dispatch(const std::shared_ptr<PostQueue>& posts) override;
  void finish();
  bool take_over_if_stuck();
  [[noreturn]] void throw_refused(PushResult result) const;

  const std::uint64_t serial_ = ClientLanes::next_serial();
  Mailbox mailbox_;
  TaskObserver observer_;
  TakeOver take_over_;
  Completion ended_;
  std::thread thread_;
};

}  // namespace cox
