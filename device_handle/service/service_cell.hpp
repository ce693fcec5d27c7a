#pragma once

#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/device_handle/base/stage.hpp>
#include <coxswain/device_handle/base/stream_id.hpp>
#include <coxswain/device_handle/base/task_error.hpp>

#include <concepts>
#include <exception>
#include <memory>
#include <optional>
#include <utility>

namespace cox {

class ThreadContext;

template <class S>
concept HasUtilities = requires(const S& service) { service.utilities(); };

template <class S>
concept HasErrorSink = requires(S& service, std::exception_ptr error, StreamId stream) {
  service.on_task_error(std::move(error), stream);
};

/// Services that a handle can build: from the ThreadContext of their thread, or from the id of its device.
template <class S>
concept OpenableService = std::constructible_from<S, ThreadContext&> || std::constructible_from<S, DeviceId>;

/// The stage of S: its static member `stage` if it has one, else Downstream.
template <class S>
[[nodiscard]] constexpr Stage stage_of() noexcept {
  if constexpr (requires {
                  { S::stage } -> std::convertible_to<Stage>;
                }) {
    return S::stage;
  } else {
    return Stage::Downstream;
  }
}

class ServiceCellBase {
 public:
  ServiceCellBase() = default;
  ServiceCellBase(const ServiceCellBase&) = delete;
  ServiceCellBase& operator=(const ServiceCellBase&) = delete;
  virtual ~ServiceCellBase() = default;

  /// Destroys the service; the cell remains. Device thread.
  virtual void close() noexcept = 0;
};

/// Holds one service on its device thread, and the data that its handles may read without a call to the service.
template <class S>
class ServiceCell final : public ServiceCellBase {
  static auto utilities_of(const S& service) {
    if constexpr (HasUtilities<S>) {
      return service.utilities();
    } else {
      return nullptr;
    }
  }

 public:
  using Utilities = decltype(utilities_of(std::declval<const S&>()));

  /// Marks the service as in use by a task, for the life of the object; one task uses it at a time. Device thread.
  class Borrow {
   public:
    explicit Borrow(ServiceCell& cell) noexcept : cell_(cell) { cell_.borrowed_ = true; }
    ~Borrow() { cell_.borrowed_ = false; }
    Borrow(const Borrow&) = delete;
    Borrow& operator=(const Borrow&) = delete;
    [[nodiscard]] S& operator*() const noexcept { return *cell_.service_; }

   private:
    ServiceCell& cell_;
  };

  template <class... Args>
  explicit ServiceCell(DeviceId device, Args&&... args)
      : device_(device), service_(std::in_place, std::forward<Args>(args)...), utilities_(utilities_of(*service_)) {}

  /// Whether a task of this service is on the stack. Device thread.
  [[nodiscard]] bool borrowed() const noexcept { return borrowed_; }

  /// Delivers the exception of a fire-and-forget task to the service's sink, else to the process-wide callback. Device
  /// thread.
  void report(std::exception_ptr error, StreamId stream) noexcept {
    if constexpr (HasErrorSink<S>) {
      try {
        service_->on_task_error(error, stream);
        return;
      } catch (...) {
        report_task_error({device_, stream, std::current_exception()});
      }
    }
    report_task_error({device_, stream, std::move(error)});
  }

  /// Passes the thread context to a service that was built elsewhere, if the service has attach(). Device thread.
  void attach(ThreadContext& thread) {
    if constexpr (requires { service_->attach(thread); }) service_->attach(thread);
  }

  /// Any thread.
  [[nodiscard]] const Utilities& utilities() const noexcept { return utilities_; }

  /// Whether the service has not been destroyed yet. Device thread.
  [[nodiscard]] bool open() const noexcept { return open_; }

  void close() noexcept override {
    open_ = false;  // first, because its destructor may make calls
    service_.reset();
  }

 private:
  DeviceId device_;
  std::optional<S> service_;
  Utilities utilities_;
  bool borrowed_ = false;
  bool open_ = true;
};

}  // namespace cox
