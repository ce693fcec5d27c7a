// How a DeviceThread ends, and how a shutdown waits for it.

#include <coxswain/device_handle/thread/device_thread.hpp>

namespace cox {
namespace {

constexpr std::chrono::milliseconds stuck_check_interval{1};

}  // namespace

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

ShutdownOutcome DeviceThread::join(std::vector<std::shared_ptr<DeviceThread>> late,
                                   std::span<const std::shared_ptr<DeviceThread>> threads,
                                   std::chrono::steady_clock::time_point deadline) {
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
    if (!late.empty()) late.front()->ended_.wait_until(std::chrono::steady_clock::now() + stuck_check_interval);
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

}  // namespace cox
