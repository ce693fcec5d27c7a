#include <coxswain/device_handle/thread/device_thread.hpp>

#include <coxswain/device_handle/base/exceed_capacity.hpp>
#include <coxswain/device_handle/queue/spin_wait.hpp>
#include <coxswain/device_handle/thread/call.hpp>

#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <utility>

namespace cox {
namespace {

using Clock = std::chrono::steady_clock;

// How long one task, or the destruction of one, may go on after the time was up before its thread is given up.
constexpr std::chrono::milliseconds grace{1000};
constexpr std::chrono::milliseconds look_again{1};

constexpr unsigned tasks_per_timed_one = 8;

// Asks the scheduler for short slices. A thread woken by a client that goes on computing is put on the client's
// processor; with the standard slice it would start at the next tick, milliseconds later. Linux 6.12 and newer take the
// slice of a normal thread from sched_runtime; older ones ignore it.
void ask_for_short_slices() noexcept {
  struct {
    std::uint32_t size;
    std::uint32_t policy;
    std::uint64_t flags;
    std::int32_t nice;
    std::uint32_t priority;
    std::uint64_t runtime;
    std::uint64_t deadline;
    std::uint64_t period;
  } attributes{};
  static_assert(sizeof attributes == 48);
  attributes.size = sizeof attributes;
  if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) != 0 || attributes.policy != SCHED_OTHER) return;
  attributes.size = sizeof attributes;
  attributes.runtime = 100'000;  // ns, the shortest that the kernel takes
  syscall(SYS_sched_setattr, 0, &attributes, 0);
}

}  // namespace

std::shared_ptr<DeviceThread> DeviceThread::start(DeviceId device, Stage stage) {
  prepare_platform();
  std::shared_ptr<DeviceThread> self(new DeviceThread(device, stage, device_thread_options(device)));
  self->thread_ = std::thread([self] { self->main(); });
  return self;
}

DeviceThread::DeviceThread(DeviceId device, Stage stage, DeviceThreadOptions options)
    : device_(device),
      stage_(stage),
      options_(std::move(options)),
      mailbox_(options_.queue_policy, options_.queue_capacity),
      timing_(options_.histograms && stamps_are_time()) {}

DeviceThread::~DeviceThread() {
  // Never shut down: the process is exiting, or is a forked child, where the thread does not exist.
  if (thread_.joinable()) thread_.detach();
}

void DeviceThread::prepare_thread() const noexcept {
  sigset_t signals;  // they are for the program's own threads
  sigfillset(&signals);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT}) sigdelset(&signals, fault);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  char name[24];
  std::snprintf(name, sizeof name, "cox-%c%u-%u", stage_ == Stage::Upstream ? 'u' : 'd', unsigned{device_.type},
                unsigned{device_.index});
  name[15] = '\0';  // the longest that the system takes
  pthread_setname_np(pthread_self(), name);
  if (!options_.cpus.empty()) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const int cpu : options_.cpus) CPU_SET(static_cast<std::size_t>(cpu), &set);
    pthread_setaffinity_np(pthread_self(), sizeof set, &set);  // a processor that is not there: stays as it is
  }
  ask_for_short_slices();
}

void DeviceThread::main() {
  prepare_thread();
  number_ = this_thread_number();
  current_ = this;
  const HeldNode held(*this);
  if (run_until_closing()) finish();
}

// Returns false if the mailbox was taken from this thread.
bool DeviceThread::run_until_closing() {
  for (bool slept = false;;) {
    if (!spin(slept)) return false;
    if (mailbox_.closing()) return true;
    ledger_.parked();
    slept = mailbox_.park();
    if (slept) ledger_.woken();
    time_next_ = true;
  }
}

// Runs what comes until nothing has come for the spin time or the mailbox is closing. Returns false if it was taken.
bool DeviceThread::spin(bool slept) {
  for (SpinWait idle(idle_spin_);;) {
    const bool ran = run_ready() != 0;
    if (custody_.load(std::memory_order_relaxed) == Custody::Taken) return false;
    if (!ran && row_.end != nullptr && !end_row_when_idle()) return false;
    if (!ran && idle_work_ != nullptr && !idle_work_->look()) end_idle_work();
    if (ran) {
      idle.restart();
      // The client that woke this thread may be waiting for the processor that it is on.
      if (std::exchange(slept, false)) idle.yield_at_once();
    } else if (mailbox_.closing() || !idle.again()) {
      end_idle_work();
      return true;
    }
  }
}

std::size_t DeviceThread::run_ready() {
  return mailbox_.run_ready([this](const Mailbox::Item& item) { return run(item); });
}

// Returns false if the mailbox was taken from this thread meanwhile.
bool DeviceThread::run(const Mailbox::Item& item) {
  running_.enter(item.type());
  if (idle_work_ != nullptr) [[unlikely]]
    end_idle_work();
  if (row_.end != nullptr && row_.type != running_.type()) [[unlikely]]
    end_row();
  // Reading the clock costs more than all else here: while the thread is awake, one task in a few stands for the
  // others.
  const bool timed = timing_ && item.submitted != 0 && (time_next_ || untimed_ + 1 >= tasks_per_timed_one) &&
                     stamps_are_time();                                                  // they may cease to be
  const TaskTracer* const tracer = detail::task_tracer.load(std::memory_order_acquire);  // pairs with set_task_tracer()
  std::uint64_t start = 0;
  if (tracer != nullptr) [[unlikely]] {
    start = begin_trace(item, *tracer);
  } else if (timed) {
    start = trace_stamp();
  }
  Outcome outcome = Outcome::Cancelled;
  if (discarding_.load(std::memory_order_relaxed)) [[unlikely]] {
    item.ops->discard(item.object, CallError::Kind::Closed);
  } else {
    const StreamScope scope(StreamId{item.stream});
    outcome = item.ops->run(item.object);
  }
  running_.leave();
  ledger_.ended(outcome);
  const std::uint64_t end = timed || tracer != nullptr ? std::max(trace_stamp(), start) : 0;
  if (timed) {
    // Clock reads of two processors that are not ordered by anything may be out of order by a little.
    ledger_.timed(start - std::min(start, item.submitted), end - start, std::exchange(untimed_, 0U) + 1);
    time_next_ = false;
  } else {
    ++untimed_;
  }
  if (tracer != nullptr) [[unlikely]]
    end_trace(item, outcome, start, end);
  return still_has_custody();
}

void DeviceThread::end_row() noexcept {
  const Row row = std::exchange(row_, {});
  if (row.end != nullptr) row.end(row.context);
}

// For who looks at the thread it is one more task of the row. Returns as run().
bool DeviceThread::end_row_when_idle() noexcept {
  running_.enter(row_.type);
  end_row();
  running_.leave();
  return still_has_custody();
}

// When the thread has left a task.
bool DeviceThread::still_has_custody() noexcept {
  SystemPlatform::light_barrier();  // pairs with take_over(): we see the request or it sees us outside a task
  return custody_.load(std::memory_order_acquire) == Custody::Kept || keep_custody();
}

// Returns when the task starts: at once after the one before it, if it was there by then.
std::uint64_t DeviceThread::begin_trace(const Mailbox::Item& item, const TaskTracer& tracer) noexcept {
  tracer_ = &tracer;
  operation_ = nullptr;
  if (tracer.begin != nullptr) tracer.begin(*running_.type());
  const std::uint64_t tracers = detail::task_tracers_set.load(std::memory_order_relaxed);
  if (std::exchange(tracers_seen_, tracers) != tracers) traced_until_ = 0;  // there may have been untraced tasks since
  const bool known = stamps_are_time() && item.submitted != 0;
  return known && item.submitted <= traced_until_ ? traced_until_ : trace_stamp();
}

void DeviceThread::end_trace(const Mailbox::Item& item, Outcome outcome, std::uint64_t start,
                             std::uint64_t end) noexcept {
  // A stamp read early may be a little older than one read before it; tasks of one thread do not overlap.
  start = std::max(start, traced_until_);
  traced_until_ = std::max(start, end);
  const RunningTask::Name name = running_.last_name();
  std::exchange(tracer_, nullptr)
      ->end({.device = device_,
             .stage = stage_,
             .outcome = outcome,
             .thread = number_,
             .client = item.lane->owner.load(std::memory_order_relaxed),
             .stream = StreamId{item.stream},
             .submitted = stamps_are_time() ? std::min(item.submitted, start) : 0,
             .start = start,
             .end = traced_until_,
             .type = running_.type(),
             .operation = operation_,
             .label = name.label,
             .file = name.file,
             .line = name.line});
}

void DeviceThread::name_operation(const char* name) noexcept {
  if (tracer_ == nullptr || operation_ != nullptr || exclusive_depth_ != 0) return;
  operation_ = name;
  if (tracer_->operation != nullptr) tracer_->operation(name);
}

void detail::name_traced_operation(const char* name) noexcept {
  if (DeviceThread* const thread = DeviceThread::current()) thread->name_operation(name);
}

// A request is being made; whoever changes it first decides.
bool DeviceThread::keep_custody() noexcept {
  Custody expected = Custody::Requested;
  custody_.compare_exchange_strong(expected, Custody::Kept, std::memory_order_acq_rel);
  return expected != Custody::Taken;
}

void DeviceThread::finish() {
  mailbox_.settle();
  while (!mailbox_.empty()) {
    run_ready();
    if (custody_.load(std::memory_order_relaxed) == Custody::Taken) return;
  }
  running_.enter(&typeid(ServiceTable));  // a destructor may get stuck as a task may
  end_idle_work();
  end_row();
  services_.close();
  running_.leave();
  ended_.signal();
}

// A stop request has no way to end a futex wait; it is looked for from time to time.
void DeviceThread::await_room(const CallOptions& options) {
  if (const auto kind = detail::obstacle(options)) std::rethrow_exception(detail::call_error(*kind, device_, &options));
  auto until = options.deadline.value_or(Clock::time_point::max());
  if (options.stop.stop_possible()) until = std::min(until, Clock::now() + look_again);
  mailbox_.await_room(until);
}

ShutdownOutcome DeviceThread::join(std::vector<std::shared_ptr<DeviceThread>> threads, Clock::time_point deadline) {
  std::vector<DeviceThread*> late;
  for (const auto& thread : threads) {
    if (!thread->ended_.wait_until(deadline)) late.push_back(thread.get());
  }
  ShutdownOutcome outcome = late.empty() ? ShutdownOutcome::Drained : ShutdownOutcome::Discarded;
  for (DeviceThread* const thread : late) thread->discard_rest();
  // All at once: a stuck thread takes nothing from the time that the others are given.
  while (!late.empty()) {
    std::erase_if(late, [&](DeviceThread* thread) {
      if (thread->ended_.done()) return true;
      if (!thread->take_over_if_stuck()) return false;
      outcome = ShutdownOutcome::Abandoned;
      return true;
    });
    if (!late.empty()) late.front()->ended_.wait_until(Clock::now() + look_again);
  }
  for (const auto& thread : threads) {
    if (thread->thread_.joinable()) thread->thread_.join();  // not one that was taken over
  }
  return outcome;
}

void DeviceThread::discard_rest() noexcept {
  discarding_.store(true, std::memory_order_relaxed);
  progress_ = running_.serial();
  stuck_since_ = Clock::now();
}

bool DeviceThread::take_over_if_stuck() {
  const std::uint64_t serial = running_.serial();
  if (std::exchange(progress_, serial) != serial) stuck_since_ = Clock::now();
  return Clock::now() - stuck_since_ >= grace && take_over();
}

// Takes the consumer's role from a thread that is inside a task and may never come back: if it does, it touches nothing
// of the mailbox any more. Its services stay as they are, for the task may be using them.
bool DeviceThread::take_over() {
  custody_.store(Custody::Requested, std::memory_order_seq_cst);
  SystemPlatform::heavy_barrier();  // pairs with the light_barrier in run()
  Custody expected = Custody::Requested;
  const Custody next = running_.in_task() ? Custody::Taken : Custody::Kept;
  if (!custody_.compare_exchange_strong(expected, next, std::memory_order_acq_rel) || next == Custody::Kept)
    return false;
  thread_.detach();
  mailbox_.prepare_take_over();
  mailbox_.settle();
  mailbox_.discard_ready([this](Outcome discarded) { ledger_.ended(discarded); });
  return true;
}

Statistics DeviceThread::statistics() const {
  Statistics statistics = ledger_.snapshot(mailbox_.accepted(), nanoseconds_per_stamp());
  statistics.queue_bytes = mailbox_.bytes();
  return statistics;
}

DeviceThread::Place DeviceThread::begin_slow(const TaskOps& ops) {
  return begin_slow(ops, HeldNode::any() || detail::ExceedCapacity::active() ? Room::Exceed : Room::Wait);
}

DeviceThread::Place DeviceThread::begin_slow(const TaskOps& ops, const CallOptions& options) {
  if (HeldNode::any() || options_.queue_policy != QueuePolicy::Block) return begin_slow(ops);
  for (;;) {
    const Place place = begin_slow(ops, Room::Refuse);
    if (place.object != nullptr) return place;
    await_room(options);
  }
}

// Under Room::Refuse the place is null at capacity.
DeviceThread::Place DeviceThread::begin_slow(const TaskOps& ops, Room room) {
  Mailbox::Lane& lane = ClientLanes::find_or_acquire(serial_, {shared_from_this(), &mailbox_});
  const Mailbox::Place place = mailbox_.begin(lane, ops, room);
  const bool full = place.result == PushResult::Full && room == Room::Refuse;
  if (place.object == nullptr && !full) throw_refused(place.result);
  return {lane, place.object};
}

void DeviceThread::throw_refused(PushResult result) const {
  const std::string where = device_.to_string() + " " + to_string(stage_);
  switch (result) {
    case PushResult::Forked:
      throw CallError(
          CallError::Kind::Forked,
          "call refused: forked: this process is a forked child, the threads of " + where + " stayed with its parent",
          std::source_location());
    case PushResult::Full:
      throw CallError(CallError::Kind::QueueFull,
                      "call refused: queue_full: " + where + " has " + std::to_string(options_.queue_capacity) +
                          " closures queued, its capacity",
                      std::source_location());
    default:
      throw CallError(CallError::Kind::Closed, "call refused: closed: " + where + " is shut down or being shut down",
                      std::source_location());
  }
}

}  // namespace cox
