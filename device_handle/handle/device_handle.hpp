#pragma once

#include <coxswain/device_handle/base/call_error.hpp>
#include <coxswain/device_handle/base/call_options.hpp>
#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/device_handle/base/fork.hpp>
#include <coxswain/device_handle/base/shutdown.hpp>
#include <coxswain/device_handle/base/stage.hpp>
#include <coxswain/device_handle/base/statistics.hpp>
#include <coxswain/device_handle/base/stream_id.hpp>
#include <coxswain/device_handle/handle/own_thread_calls.hpp>
#include <coxswain/device_handle/handle/submit_async.hpp>
#include <coxswain/device_handle/observe/wait_graph.hpp>
#include <coxswain/device_handle/registry/registry.hpp>
#include <coxswain/device_handle/service/call.hpp>
#include <coxswain/device_handle/service/posted_task.hpp>
#include <coxswain/device_handle/service/service_cell.hpp>
#include <coxswain/device_handle/thread/device_thread.hpp>

#include <concepts>
#include <functional>
#include <memory>
#include <source_location>
#include <type_traits>
#include <utility>

namespace cox {

/// A client's handle of the service S of one device. S is built exactly once, on the device's thread, and lives there;
/// no other thread touches it. Clients submit closures that take an S& to that thread.
///
/// Handles are inexpensive to copy and may be used from any thread, also if they are const. The laws of docs/design.md
/// hold for every call. In short: closures run in the order in which their calls were made (L1), each exactly once
/// (L2), promptly (L3), under the caller's StreamId (L9), and are destroyed on the device thread right after they ran
/// (L6).
///
/// Every call throws CallError Closed once the device's shutdown has begun, Forked in a forked child, and QueueFull at
/// the queue's capacity under QueuePolicy::Fail; the closure then never runs. submit_async completes its token with
/// Closed and QueueFull instead. Under QueuePolicy::Block a call waits for room, except submit_async and calls on
/// threads that hold a device up (HeldNode: device threads, completion handlers, host kernels). A CallError has the
/// line of the call as its site().
///
/// From a task of this device thread: submit enqueues after the tasks that are already queued. submit_blocking to
/// another service runs at once, ahead of the queue (the one exception to L1); to a service that is on the stack it
/// throws CallError WouldDeadlock. exclusive runs at once. Inside exclusive, calls to all services of the thread run at
/// once.
template <class S, class Device>
class BasicDeviceHandle {
 public:
  using Service = S;
  using Site = std::source_location;

  /// Returns the handle of S on `device`. If needed, starts the device's thread and builds S on it, from the
  /// ThreadContext of that thread or, if S has no such constructor, from `device`; blocks until that is done. Throws
  /// what the constructor of S throws; the next get() tries again.
  [[nodiscard]] static BasicDeviceHandle get(DeviceId device, Site site = Site::current())
    requires OpenableService<S>
  {
    return detail::at_site(site, [&] {
      return open(device, [device](ThreadContext& thread) {
        if constexpr (std::constructible_from<S, ThreadContext&>) {
          return std::make_unique<ServiceCell<S>>(device, thread);
        } else {
          return std::make_unique<ServiceCell<S>>(device, device);
        }
      });
    });
  }

  /// Registers an existing service object. Blocks until it has been moved to the device's thread and its
  /// `attach(ThreadContext&)`, if it has one, has been called. Throws what attach() throws, and CallError
  /// AlreadyRegistered if the device already has an S.
  static BasicDeviceHandle insert(DeviceId device, S service, Site site = Site::current())
    requires std::move_constructible<S>
  {
    bool inserted = false;
    BasicDeviceHandle handle = detail::at_site(site, [&] {
      return open(device, [&](ThreadContext& thread) {
        inserted = true;
        auto cell = std::make_unique<ServiceCell<S>>(device, std::move(service));
        cell->attach(thread);
        return cell;
      });
    });
    if (!inserted) {
      throw CallError(
          CallError::Kind::AlreadyRegistered,
          "cannot insert a service: already_registered: " + device.to_string() + " has a service of this type already",
          site);
    }
    return handle;
  }

  /// Fire and forget: enqueues `f(S&)` and returns. An exception of `f` goes to S::on_task_error, else to the process's
  /// task error callback (L5). Captures of up to 40 bytes are stored in the queue's own cache line, up to 4 KiB in
  /// recycled memory.
  template <class F>
    requires std::invocable<std::decay_t<F>, S&>
  void submit(F&& f, Site site = Site::current()) const {
    if constexpr (std::is_lvalue_reference_v<F>) {
      submit(std::decay_t<F>(f), site);
    } else {
      auto make = [&]() -> std::decay_t<F> { return std::forward<F>(f); };
      post(posted(make), site);
    }
  }
  template <class F>
    requires std::invocable<std::decay_t<F>, S&>
  void submit(F&& f, CallOptions options) const {
    auto make = [&]() -> std::decay_t<F> { return std::forward<F>(f); };
    auto task = detail::guarded<Device>(posted(make)(), options);
    post(moving(task), options);
  }
  /// Like submit(), with the closure that `make()` returns, which is built in place in the queue: for captures of
  /// hundreds of bytes. `make` is called once, unless the call is refused. It should only move objects, and must not
  /// submit anything itself.
  template <class Make>
    requires std::invocable<std::invoke_result_t<Make&>, S&>
  void submit_in_place(Make&& make, Site site = Site::current()) const {
    post(posted(make), site);
  }

  /// Runs `f(S&)` on the device thread and blocks until it has completed. Returns its value, or throws what it threw,
  /// unchanged. `f` may borrow from the caller's stack. Throws CallError WouldDeadlock if the calling device thread
  /// would wait for itself, directly or through other threads (L10).
  template <class F>
    requires std::invocable<std::decay_t<F>&, S&>
  std::invoke_result_t<std::decay_t<F>&, S&> submit_blocking(F&& f, Site site = Site::current()) const {
    return call(service_body(std::forward<F>(f)), true, site);
  }
  template <class F>
    requires std::invocable<std::decay_t<F>&, S&>
  std::invoke_result_t<std::decay_t<F>&, S&> submit_blocking(F&& f, CallOptions options) const {
    return call(service_body(std::forward<F>(f)), true, options.site, options);
  }

  /// Enqueues `f(S&)` and completes `token` (any Boost.Asio completion token) with void(std::exception_ptr, R), or
  /// void(std::exception_ptr) if `f` returns nothing. The handler runs on its associated executor, else on
  /// boost::asio::system_executor, with the caller's StreamId; always by post, never on the device thread. Does not
  /// block: under QueuePolicy::Block it exceeds the capacity, since a blocked executor could not run the work that
  /// makes room. A call that is refused (CallError Closed, QueueFull, WouldDeadlock, Expired, Cancelled;
  /// std::bad_alloc) completes the token with that error: a coroutine gets it as an exception at its co_await. The call
  /// itself throws only CallError Forked and what moving or copying `f` throws. If the executor's context is destroyed
  /// first, the handler is destroyed with it uncalled, like the handlers of Asio's own operations, and the result is
  /// dropped.
  template <class F, class CompletionToken>
    requires std::invocable<std::decay_t<F>&, S&>
  auto submit_async(F&& f, CompletionToken&& token) const {
    return initiate_async(std::forward<F>(f), std::forward<CompletionToken>(token));
  }
  template <class F, class CompletionToken>
    requires std::invocable<std::decay_t<F>&, S&>
  auto submit_async(F&& f, CallOptions options, CompletionToken&& token) const {
    return initiate_async(std::forward<F>(f), std::forward<CompletionToken>(token), std::move(options));
  }

  /// Occupies the device thread: `f()` runs on it, and calls that `f` makes to services of the same thread run inline,
  /// in order, with no task of another client in between. Blocks. Returns what `f` returns or throws what it threw.
  template <class F>
    requires std::invocable<std::decay_t<F>&>
  std::invoke_result_t<std::decay_t<F>&> exclusive(F&& f, Site site = Site::current()) const {
    return call(exclusive_body(std::forward<F>(f)), false, site);
  }
  template <class F>
    requires std::invocable<std::decay_t<F>&>
  std::invoke_result_t<std::decay_t<F>&> exclusive(F&& f, CallOptions options) const {
    return call(exclusive_body(std::forward<F>(f)), false, options.site, options);
  }

  /// A hint that no more calls will follow soon. It has no effect: no call waits for it (L3).
  void flush_queue() const noexcept {}

  [[nodiscard]] DeviceId device_id() const noexcept { return device_->device(); }

  /// The device's node in the wait graph (L10). For operations of your own that other threads wait for.
  [[nodiscard]] std::shared_ptr<WaitNode> wait_node() const noexcept { return device_; }

  /// The value that S::utilities() returned when S was built. Does not involve the device thread.
  [[nodiscard]] auto utilities() const
    requires HasUtilities<S>
  {
    return cell_->utilities();
  }

  /// Whether tasks run on the caller's thread.
  [[nodiscard]] static constexpr bool is_blocking() noexcept { return Device::is_blocking; }

  /// Statistics of the device thread, for all its services together. Does not involve the device thread.
  [[nodiscard]] Statistics statistics() const { return device_->statistics(); }

 private:
  BasicDeviceHandle(std::shared_ptr<Device> device, ServiceCell<S>& cell) : device_(std::move(device)), cell_(&cell) {}

  template <class Build>
  static BasicDeviceHandle open(DeviceId id, Build&& build) {
    for (;;) {
      std::shared_ptr<Device> device = Registry<Device>::find_or_start(id, stage_of<S>());
      if (auto* const cell = device->services().template find<S>()) return {std::move(device), *cell};
      auto body = [&]() -> ServiceCell<S>& {
        return device->services().template find_or_build<S>(id, [&] { return build(*device); });
      };
      if (device->on_this_thread()) {
        ServiceCell<S>& cell = body();
        return {std::move(device), cell};
      }
      try {
        ServiceCell<S>& cell = detail::wait_for(*device, std::move(body));
        return {std::move(device), cell};
      } catch (const CallError& error) {
        // The device was shut down between the two steps. Retry with a new one, unless this one is still registered.
        if (error.kind() != CallError::Kind::Closed || Registry<Device>::find(id, stage_of<S>()) == device) throw;
      }
    }
  }

  // Returns the body of a call to this service.
  template <class F>
  auto service_body(F&& f) const {
    return [cell = cell_, f = std::decay_t<F>(std::forward<F>(f))]() mutable -> decltype(auto) {
      const typename ServiceCell<S>::Borrow service(*cell);
      return std::invoke(f, *service);
    };
  }

  template <class F>
  auto exclusive_body(F&& f) const {
    return [device = device_.get(), f = std::decay_t<F>(std::forward<F>(f))]() mutable -> decltype(auto) {
      const typename Device::ExclusiveScope scope(*device);
      return std::invoke(f);
    };
  }

  // Returns the maker of the task that runs the closure that `make()` returns.
  template <class Make>
  static auto posted(Make& make) {
    return [&make] { return detail::PostedTask<S, Device, std::invoke_result_t<Make&>>(std::in_place, make); };
  }

  // `option` is one that PostOptions can be made from; on the fast path it costs nothing. Device::post() is called in
  // one place, so that it is inlined.
  template <TaskMaker Make, class Option>
  void post(Make&& make, const Option& option) const {
    if (device_->on_this_thread() && own_thread_calls().runs_inside(PostOptions(option).site)) [[unlikely]] {
      own_thread_calls().run_inside_exclusive(device_->box(make));
    } else {
      device_->post(make, option);
    }
  }

  // Makes a blocking call. `uses_service`: the body uses the service.
  template <class Body, class... Options>
  auto call(Body&& body, bool uses_service, const Site& site, const Options&... options) const
      -> std::invoke_result_t<Body&> {
    return detail::at_site(site, [&]() -> std::invoke_result_t<Body&> {
      if (!device_->on_this_thread()) return detail::wait_for(*device_, std::forward<Body>(body), options...);
      return own_thread_calls().call(body, uses_service, options...);
    });
  }

  template <class F, class CompletionToken, class... Options>
  auto initiate_async(F&& f, CompletionToken&& token, Options... options) const {
    throw_if_forked(device_id());  // a forked child has no executor threads to complete a token
    return detail::initiate<std::invoke_result_t<std::decay_t<F>&, S&>>(
        [self = *this, body = service_body(std::forward<F>(f)),
         ... options = std::move(options)]<class Handler>(Handler&& handler) mutable {
          const auto post = [&](auto& task) { self.post(moving(task), WhenFull::Overcommit); };
          detail::start_async<Device>(std::move(body), std::forward<Handler>(handler), self.device_id(), post,
                                      options...);
        },
        std::forward<CompletionToken>(token));
  }

  // The calling thread is the device thread.
  [[nodiscard]] detail::OwnThreadCalls<S, Device> own_thread_calls() const noexcept { return {*device_, *cell_}; }

  std::shared_ptr<Device> device_;
  ServiceCell<S>* cell_;  // lives as long as *device_
};

/// A handle of a service on its device's own thread.
template <class S>
using DeviceHandle = BasicDeviceHandle<S, DeviceThread>;

}  // namespace cox
