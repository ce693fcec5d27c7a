#include <coxswain/servers/cuda/detail/doorbell.hpp>

#include <coxswain/device_handle/device_handle.hpp>
#include <coxswain/device_handle/device_thread.hpp>
#include <coxswain/device_handle/inline_device_handle.hpp>

#include <utility>

namespace cox::detail {
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
      if (shared->answer) shared->answer();
    });
  };
}

}  // namespace

Doorbell::Doorbell(DeviceId device, std::function<void()> answer) : shared_(std::make_shared<Shared>()) {
  shared_->answer = std::move(answer);
  submit_ = DeviceThread::current() != nullptr ? submitter<DeviceHandle<DoorbellService>>(device, shared_)
                                               : submitter<InlineDeviceHandle<DoorbellService>>(device, shared_);
}

void Doorbell::ring() noexcept {
  // Release: what the ringer did is visible to who answers.
  if (shared_->rung.exchange(true, std::memory_order_acq_rel)) return;
  try {
    submit_();
  } catch (...) {  // closed: the device thread looks by itself then
  }
}

void Doorbell::mute() noexcept { shared_->answer = nullptr; }

}  // namespace cox::detail
