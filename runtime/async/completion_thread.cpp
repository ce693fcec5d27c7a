#include <coxswain/runtime/async/completion_thread.hpp>

#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/device_handle/registry/registry.hpp>
#include <coxswain/device_handle/thread/blocked_signals.hpp>
#include <coxswain/runtime/base/thread_name.hpp>

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <utility>

namespace cox {

/// Shared with the thread, so that the last owner may destroy the CompletionThread on the thread itself.
struct CompletionThread::State {
  DeviceId device;
  std::shared_ptr<WaitNode> handlers = std::make_shared<WaitNode>();
  std::shared_ptr<WaitNode> streams = std::make_shared<WaitNode>();
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<UniqueFunction<void()>> functions;
  std::thread thread;
  bool stopped = false;

  void call(UniqueFunction<void()>& function) const noexcept {
    try {
      function();
    } catch (...) {
      report_task_error({device, StreamId{}, std::current_exception()});
    }
    function.reset();
  }

  void run() {
    const HeldNode held(*handlers);
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [this] { return stopped || !functions.empty(); });
      if (functions.empty()) return;
      UniqueFunction<void()> function = std::move(functions.front());
      functions.pop_front();
      lock.unlock();
      call(function);
      lock.lock();
    }
  }
};

CompletionThread::CompletionThread(DeviceId device) : state_(std::make_shared<State>()) {
  state_->device = device;
  shutdown_waits_for(device, state_->handlers);
  shutdown_waits_for(device, state_->streams);
  const detail::BlockedSignals blocked;
  state_->thread = std::thread([state = state_] {
    detail::name_this_thread("cox-done-" + std::to_string(state->device.type) + "." +
                             std::to_string(state->device.index));
    state->run();
  });
}

DeviceId CompletionThread::device() const noexcept { return state_->device; }

CompletionThread::~CompletionThread() { stop(); }

void CompletionThread::execute(UniqueFunction<void()> function) noexcept {
  {
    const std::lock_guard lock(state_->mutex);
    if (!state_->stopped) {
      try {
        state_->functions.emplace_back();
        state_->functions.back() = std::move(function);
        state_->changed.notify_one();
        return;
      } catch (const std::bad_alloc&) {  // from emplace_back: called below
      }
    }
  }
  state_->call(function);
}

const std::shared_ptr<WaitNode>& CompletionThread::streams() const noexcept { return state_->streams; }

void CompletionThread::stop() noexcept {
  std::thread thread;
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopped = true;
    state_->changed.notify_one();
    thread.swap(state_->thread);
  }
  if (!thread.joinable()) return;
  if (thread.get_id() == std::this_thread::get_id()) {
    thread.detach();  // The thread runs the remaining functions and ends; it shares ownership of the state.
  } else {
    thread.join();
  }
}

}  // namespace cox
