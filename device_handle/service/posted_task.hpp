#pragma once

#include <coxswain/device_handle/base/call_error.hpp>
#include <coxswain/device_handle/base/stream_id.hpp>
#include <coxswain/device_handle/queue/task.hpp>
#include <coxswain/device_handle/service/service_cell.hpp>

#include <exception>
#include <functional>
#include <utility>

namespace cox::detail {

/// A task that no caller waits for. `F` takes the service; the size of the task is the size of F.
template <class S, class Device, class F>
class PostedTask {
 public:
  /// `make()` returns the F, which is built in place.
  template <class Make>
  PostedTask(std::in_place_t, Make& make) : f_(make()) {}

  Outcome operator()() noexcept {
    ServiceCell<S>& cell = Device::template current_cell<S>();
    try {
      const typename ServiceCell<S>::Borrow service(cell);
      std::invoke(std::move(f_), *service);
      return Outcome::Completed;
    } catch (...) {
      cell.report(std::current_exception(), StreamId::current());
      return Outcome::Failed;
    }
  }
  void discard(CallError::Kind) noexcept {}

 private:
  F f_;
};

}  // namespace cox::detail
