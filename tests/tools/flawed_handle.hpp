#pragma once

#include <coxswain/device_handle/handle/device_handle.hpp>
#include <coxswain/servers/host/server/host_server.hpp>

#include <memory>
#include <utility>

namespace cox::stress {

/// Everything but submit is DeviceHandle's. `Flaw::submit(handle, closure)` decides what becomes of a closure.
template <class S, template <class> class Flaw>
class FlawedHandle : public DeviceHandle<S> {
 public:
  static FlawedHandle insert(DeviceId device, S service) {
    return FlawedHandle(DeviceHandle<S>::insert(device, std::move(service)));
  }

  template <class F>
  void submit(F&& f) {
    flaw_->submit(static_cast<DeviceHandle<S>&>(*this), std::forward<F>(f));
  }
  template <class F>
  void submit(F&& f, CallOptions options) {
    before_other_call();
    DeviceHandle<S>::submit(std::forward<F>(f), std::move(options));
  }
  template <class F, class... Options>
  decltype(auto) submit_blocking(F&& f, Options... options) {
    before_other_call();
    return DeviceHandle<S>::submit_blocking(std::forward<F>(f), std::move(options)...);
  }

 private:
  explicit FlawedHandle(DeviceHandle<S> handle)
      : DeviceHandle<S>(std::move(handle)), flaw_(std::make_shared<Flaw<S>>()) {}

  void before_other_call() {
    if constexpr (requires(Flaw<S>& flaw, DeviceHandle<S>& handle) { flaw.before_other_call(handle); })
      flaw_->before_other_call(*this);
  }

  std::shared_ptr<Flaw<S>> flaw_;
};

/// The library with handles that break a law.
template <template <class> class Flaw>
struct FlawedBackend {
  template <class S>
  using Handle = FlawedHandle<S, Flaw>;
  using Compute = HostClient;
};

}  // namespace cox::stress
