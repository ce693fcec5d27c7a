#include <coxswain/servers/cuda/detail/doorbell.hpp>

#include <coxswain/device_handle/call_error.hpp>
#include <coxswain/device_handle/device_handle.hpp>
#include <coxswain/device_handle/device_thread.hpp>
#include <coxswain/device_handle/inline_device_handle.hpp>
#include <coxswain/runtime/detail/adaptive_mutex.hpp>
#include <coxswain/runtime/detail/waiting_help.hpp>

#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

namespace cox::detail {

struct Doorbell::Shared {
  std::function<void()> answer;  // device thread; empty: muted
  std::atomic<bool> rung{false};
  std::atomic<bool> muted{false};
  AdaptiveMutex mutex;
  std::vector<Call> calls;  // guarded by mutex

  void look() {
    if (!answer) return;
    make_calls();
    answer();
  }
  bool make_calls() {
    std::vector<Call> taken;
    {
      const std::lock_guard lock(mutex);
      taken.swap(calls);
    }
    for (Call& call : taken) call();
    return !taken.empty();
  }
};

namespace {

/// Shares the device thread with the server, so that what is submitted to it runs there.
struct DoorbellService {
  explicit DoorbellService(DeviceId) {}
};

template <class Handle, class Shared>
std::function<void()> submitter(DeviceId device, std::shared_ptr<Shared> shared) {
  return [handle = Handle::get(device), shared = std::move(shared)] {
    handle.submit([shared](DoorbellService&) {
      // Before it looks: who rings from here on rings again. Acquire pairs with the release in ring().
      shared->rung.exchange(false, std::memory_order_acq_rel);
      shared->look();
    });
  };
}

}  // namespace

Doorbell::Doorbell(DeviceId device, std::function<void()> answer)
    : device_(device), shared_(std::make_shared<Shared>()) {
  shared_->answer = std::move(answer);
  if (DeviceThread::current() != nullptr) find_device_thread();
}

void Doorbell::find_device_thread() {
  try {
    const bool on_device_thread = DeviceThread::current() != nullptr;
    if (on_device_thread)
      set_waiting_help([weak = std::weak_ptr(shared_)] {
        if (const auto shared = weak.lock()) shared->look();
      });
    submit_ = on_device_thread ? submitter<DeviceHandle<DoorbellService>>(device_, shared_)
                               : submitter<InlineDeviceHandle<DoorbellService>>(device_, shared_);
  } catch (const CallError&) {  // being closed: the device thread looks by itself then
    submit_ = [] {};
  }
}

void Doorbell::ring() noexcept {
  // Release: what the ringer did is visible to who answers.
  // Relaxed: who is muted looks by himself, whoever rings.
  if (!submit_ || shared_->muted.load(std::memory_order_relaxed) ||
      shared_->rung.exchange(true, std::memory_order_acq_rel))
    return;
  try {
    submit_();
  } catch (...) {  // closed: the device thread looks by itself then
  }
}

void Doorbell::post(Call call) {
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->calls.push_back(std::move(call));
  }
  ring();
}

bool Doorbell::make_calls() { return shared_->make_calls(); }

void Doorbell::mute() noexcept {
  shared_->muted.store(true, std::memory_order_relaxed);
  shared_->answer = nullptr;
}

}  // namespace cox::detail
