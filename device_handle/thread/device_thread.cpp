#include <coxswain/device_handle/thread/device_thread.hpp>

#include <coxswain/device_handle/base/exceed_capacity.hpp>
#include <coxswain/device_handle/queue/spin_wait.hpp>
#include <coxswain/device_handle/service/call.hpp>
#include <coxswain/device_handle/thread/thread_setup.hpp>

#include <algorithm>
#include <utility>

namespace cox {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds recheck_interval{1};

}  // namespace

std::shared_ptr<DeviceThread> DeviceThread::start(DeviceId device, Stage stage) {
  prepare_platform();
  std::shared_ptr<DeviceThread> self(new DeviceThread(device, stage, device_thread_options(device)));
  self->thread_ = std::thread([self] { self->main(); });
  return self;
}

DeviceThread::DeviceThread(DeviceId device, Stage stage, DeviceThreadOptions options)
    : DeviceBase(device, stage, true, std::move(options)),
      mailbox_(options_.queue_policy, options_.queue_capacity),
      observer_(device, stage, counters_, options_.histograms && stamps_are_time()) {}

DeviceThread::~DeviceThread() {
  // Never shut down: the process is exiting, or is a forked child, where the thread does not exist.
  if (thread_.joinable()) thread_.detach();
}

void DeviceThread::main() {
  detail::set_up_device_thread(device_, stage_, options_.cpus);
  observer_.begin_thread();
  current_ = this;
  const HeldNode held(*this);
  if (run_until_closing()) finish();
}

// Returns false if another thread has taken over the mailbox.
bool DeviceThread::run_until_closing() {
  for (bool slept = false;;) {
    if (!spin(slept)) return false;
    if (mailbox_.closing()) return true;
    counters_.count_park();
    slept = mailbox_.park();
    if (slept) counters_.count_wake();
    observer_.on_sleep();
  }
}

// Runs tasks until none has arrived for the spin time or the mailbox is closing. Returns false if the mailbox was taken
// over.
bool DeviceThread::spin(bool slept) {
  for (SpinWait idle(between_.spin);;) {
    const bool ran = run_ready() != 0;
    if (take_over_.taken()) return false;
    if (!ran && between_.batch != nullptr && !end_batch_when_idle()) return false;
    if (!ran && between_.idle != nullptr && !between_.idle->poll()) end_idle_poll();
    if (ran) {
      idle.restart();
      // The client that woke this thread may be waiting for the processor that this thread occupies.
      if (std::exchange(slept, false)) idle.yield_immediately();
    } else if (mailbox_.closing() || !idle.spin_once()) {
      end_idle_poll();
      return true;
    }
  }
}

std::size_t DeviceThread::run_ready() {
  return mailbox_.run_ready([this](const Mailbox::Item& item) { return run(item); });
}

// Returns false if the mailbox was taken over while the task ran.
bool DeviceThread::run(const Mailbox::Item& item) {
  const bool other = observer_.enter(item.type());
  if (between_.idle != nullptr) [[unlikely]]
    end_idle_poll();
  if (between_.batch != nullptr && other) [[unlikely]]
    end_batch();
  const TaskObserver::Start start = observer_.start(item);
  Outcome outcome = Outcome::Cancelled;
  if (take_over_.discarding()) [[unlikely]] {
    item.ops->discard(item.object, CallError::Kind::Closed);
  } else {
    const StreamScope scope(StreamId{item.stream});
    outcome = item.ops->run(item.object);
  }
  observer_.end(item, outcome, start);
  return take_over_.leave_task();
}

// Counts as a task of the batch for the stall detector. Returns false if the mailbox was taken over.
bool DeviceThread::end_batch_when_idle() noexcept {
  observer_.reenter();
  end_batch();
  observer_.leave();
  return take_over_.leave_task();
}

void DeviceThread::queue_dispatch(const std::shared_ptr<PostQueue>& posts) {
  if (!dispatch_inline(posts)) post([&] { return PostQueue::DispatchPosts{posts}; }, WhenFull::OvercommitAlways);
}

void detail::name_traced_operation(const char* name) noexcept {
  DeviceThread* const thread = DeviceThread::current();
  if (thread != nullptr && !thread->exclusive()) thread->observer_.name_operation(name);
}

void DeviceThread::finish() {
  mailbox_.quiesce();
  while (!mailbox_.empty()) {
    run_ready();
    if (take_over_.taken()) return;
  }
  observer_.enter(&typeid(ServiceTable));  // a destructor may get stuck like a task
  end_idle_poll();
  end_batch();
  services_.close();
  observer_.leave();
  ended_.signal();
}

// A stop request cannot end a futex wait, so it is polled: the wait ends after `recheck_interval` at the latest.
void DeviceThread::wait_for_space(const CallOptions& options) {
  if (const auto kind = detail::find_refusal(options))
    std::rethrow_exception(detail::call_error(*kind, device_, &options));
  auto until = options.deadline.value_or(Clock::time_point::max());
  if (options.stop.stop_possible()) until = std::min(until, Clock::now() + recheck_interval);
  mailbox_.wait_for_space(until);
}

ShutdownOutcome DeviceThread::join(std::vector<std::shared_ptr<DeviceThread>> late,
                                   std::span<const std::shared_ptr<DeviceThread>> threads, Clock::time_point deadline) {
  std::erase_if(late, [&](const auto& thread) { return thread->ended_.wait_until(deadline); });
  ShutdownOutcome outcome = late.empty() ? ShutdownOutcome::Drained : ShutdownOutcome::Discarded;
  for (const auto& thread : late) thread->take_over_.discard_rest(thread->running());
  // All at the same time: a stuck thread does not reduce the time of the others.
  while (!late.empty()) {
    std::erase_if(late, [&](const auto& thread) {
      if (thread->ended_.done()) return true;
      if (!thread->take_over_if_stuck()) return false;
      outcome = ShutdownOutcome::Abandoned;
      return true;
    });
    if (!late.empty()) late.front()->ended_.wait_until(Clock::now() + recheck_interval);
  }
  for (const auto& thread : threads) {
    if (thread->thread_.joinable()) thread->thread_.join();  // not one that was taken over
  }
  return outcome;
}

// The services are not touched: the task that the thread is stuck in may be using them.
bool DeviceThread::take_over_if_stuck() {
  if (!take_over_.take_if_stuck(running())) return false;
  thread_.detach();
  mailbox_.prepare_take_over();
  mailbox_.quiesce();
  mailbox_.discard_ready([this](Outcome discarded) { counters_.count_outcome(discarded); });
  return true;
}

Statistics DeviceThread::statistics() const {
  Statistics statistics = counters_.snapshot(mailbox_.accepted(), nanoseconds_per_stamp());
  statistics.queue_bytes = mailbox_.bytes();
  return statistics;
}

DeviceThread::Reservation DeviceThread::begin_slow(const TaskOps& ops, const PostOptions& options) {
  WhenFull when_full = options.when_full;
  if (when_full == WhenFull::Block && (HeldNode::any_held() || detail::ExceedCapacity::active()))
    when_full = WhenFull::Overcommit;
  const bool limited =
      options.call != nullptr && when_full == WhenFull::Block && options_.queue_policy == QueuePolicy::Block;
  return detail::at_site(options.site, [&]() -> Reservation {
    for (;;) {
      Mailbox::Lane& lane = ClientLanes::find_or_acquire(serial_, {shared_from_this(), &mailbox_});
      const auto [result, object] = mailbox_.begin(lane, ops, limited ? WhenFull::Fail : when_full);
      if (object != nullptr) return {lane, object};
      if (!limited || result != PushResult::Full) throw_refused(result);
      wait_for_space(*options.call);
    }
  });
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
