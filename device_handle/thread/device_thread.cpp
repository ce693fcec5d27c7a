#include <coxswain/device_handle/thread/device_thread.hpp>

#include <coxswain/device_handle/queue/spin_wait.hpp>
#include <coxswain/device_handle/thread/blocked_signals.hpp>
#include <coxswain/device_handle/thread/thread_setup.hpp>

#include <utility>

namespace cox {

std::shared_ptr<DeviceThread> DeviceThread::start(DeviceId device, Stage stage) {
  prepare_platform();
  std::shared_ptr<DeviceThread> self(new DeviceThread(device, stage, device_thread_options(device)));
  const detail::BlockedSignals blocked;
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

Statistics DeviceThread::statistics() const {
  Statistics statistics = counters_.snapshot(mailbox_.accepted(), nanoseconds_per_stamp());
  statistics.queue_bytes = mailbox_.bytes();
  return statistics;
}

}  // namespace cox
