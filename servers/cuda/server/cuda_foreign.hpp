#pragma once

#include <cstddef>
#include <memory>
#include <source_location>

struct CUstream_st;
struct CUevent_st;

namespace cox {

/// A stream of the CUDA driver or runtime: a CUstream or cudaStream_t. Null is the legacy default stream.
using NativeCudaStream = CUstream_st*;
/// An event of the CUDA driver or runtime: a CUevent or cudaEvent_t.
using NativeCudaEvent = CUevent_st*;

/// When memory of another owner may be accessed: at once; when an event is reached; or when all work is complete that
/// its owner has queued on a stream before the call that takes this.
class CudaReady {
 public:
  CudaReady() noexcept = default;
  /// The event must have been recorded, outside a capture, and must neither be recorded again nor be destroyed before
  /// the wait has been given to the driver (ComputeClient::issued). Null is refused.
  CudaReady(NativeCudaEvent event) noexcept : event_(event), is_event_(true) {}  // NOLINT(google-explicit-constructor)
  /// A stream of the same device, not in capture.
  CudaReady(NativeCudaStream stream) noexcept
      : stream_(stream), is_stream_(true) {}  // NOLINT(google-explicit-constructor)
  CudaReady(std::nullptr_t) = delete;

  [[nodiscard]] NativeCudaEvent event() const noexcept { return event_; }
  [[nodiscard]] NativeCudaStream stream() const noexcept { return stream_; }
  [[nodiscard]] bool is_event() const noexcept { return is_event_; }
  [[nodiscard]] bool is_stream() const noexcept { return is_stream_; }

 private:
  NativeCudaEvent event_ = nullptr;
  NativeCudaStream stream_ = nullptr;
  bool is_event_ = false;
  bool is_stream_ = false;
};

namespace detail {

class CudaContext;

/// What the device waits for before it accesses memory of another owner; may be null. Any thread.
class CudaFence;
using CudaFencePtr = std::shared_ptr<const CudaFence>;

/// Records an event on the stream of `ready`, if it has one. Throws ServerError: Graph if the stream is in capture or
/// the event was recorded in one, Validation if the stream belongs to another device or the event is null; CudaError.
[[nodiscard]] CudaFencePtr make_fence(const CudaContext& context, const CudaReady& ready, std::source_location site);
/// The stream as the driver takes it on every thread. Throws ServerError as make_fence().
[[nodiscard]] NativeCudaStream require_stream(const CudaContext& context, NativeCudaStream stream,
                                              std::source_location site);
/// Work given to `stream` from now on runs after the fence. Throws CudaError.
void enqueue_wait(const CudaFence& fence, NativeCudaStream stream);
/// Throws IoError unless the device can access these bytes as its own memory: InvalidPointer, Misaligned, WrongDevice,
/// OutOfBounds.
void require_device_memory(const CudaContext& context, const void* pointer, std::size_t bytes,
                           std::source_location site);

}  // namespace detail
}  // namespace cox
