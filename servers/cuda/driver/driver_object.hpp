#pragma once

#include <coxswain/servers/cuda/driver/cuda_try.hpp>

#include <algorithm>
#include <cstddef>
#include <utility>

namespace cox::detail {

/// The name of a function of the driver, as a template argument.
template <std::size_t size>
struct CallName {
  constexpr CallName(const char (&name)[size]) noexcept { std::copy_n(name, size, text); }
  char text[size]{};
};

/// Owns an object of the driver, as std::unique_ptr does: a stream, memory. It is destroyed by the member `destroy` of
/// Driver, on the thread that destroys the owner; the object's context must be current there. A failure to destroy is
/// reported as by COX_CUDA_CHECK: the call is also made after a GPU fault, but not while the process is ending (L13).
template <class Handle, auto destroy, CallName name>
class DriverObject {
 public:
  DriverObject() noexcept = default;
  DriverObject(DriverObject&& other) noexcept
      : driver_(other.driver_), handle_(std::exchange(other.handle_, Handle{})) {}
  DriverObject& operator=(DriverObject&& other) noexcept {
    DriverObject taken(std::move(other));
    std::swap(driver_, taken.driver_);
    std::swap(handle_, taken.handle_);
    return *this;
  }
  ~DriverObject() { reset(); }

  /// Null if there is no object.
  [[nodiscard]] Handle get() const noexcept { return handle_; }
  [[nodiscard]] explicit operator bool() const noexcept { return handle_ != Handle{}; }
  /// Destroys the object, if there is one.
  void reset() noexcept {
    const Handle old = std::exchange(handle_, Handle{});
    if (old != Handle{} && !process_is_ending()) check_cuda((driver_->*destroy)(old), name.text);
  }
  /// For the function of `owner` that creates an object: the place for its handle. Destroys the object that is there.
  [[nodiscard]] Handle* out(const Driver& owner = driver()) {
    reset();
    driver_ = &owner;
    return &handle_;
  }

 private:
  const Driver* driver_ = nullptr;  // not null if there is an object
  Handle handle_{};
};

using DriverStream = DriverObject<CUstream, &Driver::stream_destroy, "stream_destroy">;
using DriverEvent = DriverObject<CUevent, &Driver::event_destroy, "event_destroy">;
using DriverGraph = DriverObject<CUgraph, &Driver::graph_destroy, "graph_destroy">;
using DriverGraphExec = DriverObject<CUgraphExec, &Driver::graph_exec_destroy, "graph_exec_destroy">;
using DriverMemory = DriverObject<CUdeviceptr, &Driver::memory_free, "memory_free">;
/// Page-locked memory of the host.
using DriverHostMemory = DriverObject<void*, &Driver::host_free, "host_free">;

}  // namespace cox::detail
