#pragma once

#include <coxswain/device_handle/base/call_error.hpp>
#include <coxswain/device_handle/base/stream_id.hpp>
#include <coxswain/device_handle/service/thread_context.hpp>
#include <coxswain/runtime/async/future.hpp>
#include <coxswain/runtime/async/promise.hpp>
#include <coxswain/runtime/base/access.hpp>
#include <coxswain/runtime/base/caller.hpp>
#include <coxswain/runtime/base/location.hpp>
#include <coxswain/runtime/client/foreign_server.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>
#include <coxswain/runtime/handle/handle.hpp>
#include <coxswain/runtime/launch/kernel_arguments.hpp>
#include <coxswain/runtime/memory/borrowed_memory.hpp>

#include <cstddef>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <type_traits>
#include <utility>

namespace cox {

/// The calls of ComputeClient for memory, streams and functions that other code owns. See docs/embedding.md.
template <class Server, class Client>
class ForeignCalls {
 public:
  using Site = std::source_location;

  /// A handle of memory that the library does not own, such as a tensor of another library: of at least `bytes` bytes,
  /// in memory of this device, aligned to 16 bytes. Hazards, poison, graphs and collectives hold for it as for any
  /// other memory, and nothing is copied. `ready`: when the memory may be accessed (CudaReady: an event or a stream;
  /// nothing: at once). `release`: called once, on the device thread, when the last handle has been dropped and the
  /// last use is complete, at the latest when the device is shut down; the owner must keep the memory until then, and
  /// must access it only as `ready`, ready_on and ready_after allow. It must not block, and must not wait for kernels
  /// as cudaFree does (that may deadlock with a collective: free on another thread, or with cudaFreeAsync); what it
  /// throws becomes a task error. Overlapping memory must not be borrowed twice at a time: hazards between two handles
  /// are known only for views of one. Does not block. Throws IoError InvalidPointer (null, not memory of a device),
  /// Misaligned, WrongDevice, OutOfBounds (the driver's allocation is smaller), and what CudaReady says; then `release`
  /// is not called. Later failures as write. In a capture the capture fails.
  template <ForeignServer S = Server>
  [[nodiscard]] Handle borrow(void* pointer, std::size_t bytes, typename S::Ready ready = {},
                              BorrowedMemory::Release release = {}, Site site = Site::current()) const {
    S::require_foreign(client().device_id(), pointer, bytes, site);
    typename S::Fence fence = S::fence(client().device_id(), ready, site);
    auto owner =
        std::make_shared<BorrowedMemory>(Location{client().device_id(), client().stream_id()}, std::move(release));
    try {
      return client().lend(pointer, bytes, std::move(fence), owner, site);
    } catch (...) {
      owner->cancel();
      throw;
    }
  }
  /// Work that is queued on the memory from now on, on any stream, runs after `ready`: after the work that the owner of
  /// a stream has queued on it so far, for instance. Does not block. Throws what CudaReady says. Later failures as
  /// write; they poison the memory.
  template <ForeignServer S = Server>
  void ready_after(const Handle& handle, typename S::Ready ready, Site site = Site::current()) const {
    client().submit(site, "ready_after",
                    [binding = handle.binding(), fence = S::fence(client().device_id(), ready, site)](
                        Server& server, const Caller& caller) { server.wait_for(binding, fence, caller); });
  }
  /// Makes a stream of another owner wait for the queued work on the memory: for what writes it, or with Access::Write
  /// also for what reads it. The owner may queue work on `stream` when the future is ready, not earlier: the wait is
  /// given to the driver when the work has been, and that may depend on other ranks. Once the owner has queued that
  /// work, it calls ready_after before the memory is used here again or its last handle is dropped. The future throws
  /// IoError Poisoned if the memory is poisoned as far as that is known then; ServerError Graph in a capture of either
  /// stream, Validation if `stream` belongs to another device; CudaError. Does not block.
  template <ForeignStreamServer S = Server>
  [[nodiscard]] Future<void> ready_on(const Handle& handle, typename S::NativeStream stream,
                                      Access access = Access::Read, Site site = Site::current()) const {
    return client().submit_promise(
        site, "ready_on",
        [binding = handle.binding(), stream, access](Server& server, const Caller& caller, Promise<void> promise) {
          server.ready_on(binding, access, stream, caller, std::move(promise));
        });
  }
  /// A StreamId, for set_stream, of work that is issued on `stream`, which was created outside the library. The same
  /// stream always has the same id until it was ended as often as it was used. The owner may queue work of its own on
  /// the stream at any time, for memory that is not used here; for other memory when issued() of this stream is ready,
  /// or inside call(). It must neither destroy nor capture the stream before end_use. Blocks for the device thread.
  /// Throws ServerError: Graph if the stream is in capture, Validation if it belongs to another device or if 64 streams
  /// are used already; CudaError.
  template <ForeignStreamServer S = Server>
  [[nodiscard]] StreamId use_stream(typename S::NativeStream stream, Site site = Site::current()) const {
    return client().device_.submit_blocking([stream, caller = Caller{client().stream_id(), site}](
                                                Server& server) { return server.use_stream(stream, caller); },
                                            site);
  }
  /// Waits until the work of that stream is complete, and uses it no longer. Throws the failures of that work; then the
  /// stream is still in use. Throws ServerError Validation if `stream` did not come from use_stream, or if a capture or
  /// profile is open on it.
  template <ForeignStreamServer S = Server>
  void end_use(StreamId stream, Site site = Site::current()) const {
    Client on_stream = client();
    on_stream.set_stream(stream);
    on_stream.sync(site).get();
    client().device_.submit_blocking(
        [stream, caller = Caller{client().stream_id(), site}](Server& server) { server.end_use(stream, caller); },
        site);
  }
  /// A future that is ready when all work queued on this stream so far has been given to the device, so that work
  /// which others queue on the native stream runs after it. For work that runs beside the stream (collectives,
  /// transfers, large copies) the stream is made to wait, as by sync_collective(). It does not throw the failures of
  /// that work. Throws ServerError Graph in a capture. Does not block.
  template <ForeignServer S = Server>
  [[nodiscard]] Future<void> issued(Site site = Site::current()) const {
    return client().submit_promise(site, "issued", [](Server& server, const Caller& caller, Promise<void> promise) {
      server.issued(caller, std::move(promise));
    });
  }
  /// Queues a call of a function of another library as one operation of this stream on the buffers of `arguments`
  /// (their scalars are not passed on): on GPUs function(stream, pointers), which queues work on that stream and
  /// returns, on the device thread, in a capture once; on host devices function(pointers), on a thread of the device,
  /// in a graph at each replay. `pointers`: one for each buffer, in order. The function must not block, and must not
  /// wait for this client. If it throws, the operation has failed, and what it should have written is poisoned.
  /// Failures as launch. Does not block.
  template <class F, ForeignServer S = Server>
  void call(KernelArguments arguments, F&& function, Site site = Site::current()) const {
    client().submit(site, "call",
                    [arguments = std::move(arguments), function = typename S::NativeCall(std::forward<F>(function))](
                        Server& server, const Caller& caller) mutable {
                      server.call(arguments.view(), std::move(function), caller);
                    });
  }
  /// As call, for a function that may wait for running kernels, as a library does that loads code at its first use: it
  /// runs while no collective is half started on any device (see quiet), so that it cannot deadlock. Blocks until the
  /// function has been called and destroyed, or the call has failed. The function must not create kept memory. Throws
  /// CallError WouldDeadlock on a device thread, ServerError Graph in a capture, CollectiveError Timeout as quiet.
  template <class F, ForeignServer S = Server>
  void call_quiet(KernelArguments arguments, F&& function, Site site = Site::current()) const {
    require_no_device_thread("call_quiet", site);
    std::promise<void> destroyed;
    std::future<void> end = destroyed.get_future();
    typename S::NativeCall call = [function = std::decay_t<F>(std::forward<F>(function)),
                                   signal = AtDestruction(std::move(destroyed))](auto&&... given) mutable {
      std::invoke(function, std::forward<decltype(given)>(given)...);
    };
    for (bool called = false; !called;) {
      client()
          .submit_promise(site, "call_quiet",
                          [&arguments](Server& server, const Caller& caller, Promise<void> promise) {
                            server.when_callable(arguments.view(), caller, std::move(promise));
                          })
          .get();
      const std::shared_ptr<void> held = quiesce<S>(site);
      called = client().device_.submit_blocking(
          [&, caller = Caller{client().stream_id(), site}](Server& server) {
            return server.try_call(arguments.view(), call, caller);
          },
          site);
      if (called) {
        call = {};
        end.wait();
      }
    }
  }
  /// Returns f(), called on this thread while no collective is half started on any device of the process: for calls
  /// that may wait for running kernels, such as the first use of a library, which loads code. Collectives that ranks
  /// submit meanwhile begin afterwards, and communicators are not created. Those that end wait for `f`, up to a minute,
  /// after a failure up to a second. So `f` must not wait for a collective, nor for another thread that creates kept
  /// memory, and must not shut a device down; it may create kept memory itself, and call quiet. Blocks while a
  /// communicator is created or destroyed, or code is loaded for one, then until the collectives that have begun are
  /// launched on all their devices. Throws CollectiveError Timeout if the latter takes a minute, CallError
  /// WouldDeadlock on a device thread.
  template <class F, ForeignServer S = Server>
  decltype(auto) quiet(F&& f, Site site = Site::current()) const {
    require_no_device_thread("quiet", site);
    const std::shared_ptr<void> held = quiesce<S>(site);
    return std::invoke(std::forward<F>(f));
  }

 private:
  [[nodiscard]] const Client& client() const noexcept { return static_cast<const Client&>(*this); }

  // S::quiesce(), which throws without a line, since it does not know the caller.
  template <class S>
  [[nodiscard]] static std::shared_ptr<void> quiesce(const Site& site) {
    try {
      return S::quiesce();
    } catch (const CollectiveError&) {
      std::rethrow_exception(detail::with_site(std::current_exception(), site));
    }
  }
  // Sets the promise when it is destroyed.
  class AtDestruction {
   public:
    explicit AtDestruction(std::promise<void> promise) noexcept : promise_(std::move(promise)) {}
    AtDestruction(AtDestruction&& other) noexcept : promise_(std::exchange(other.promise_, std::nullopt)) {}
    AtDestruction& operator=(AtDestruction&&) = delete;
    ~AtDestruction() {
      if (promise_) promise_->set_value();
    }

   private:
    std::optional<std::promise<void>> promise_;
  };
  static void require_no_device_thread(const char* call, const Site& site) {
    if (ThreadContext::current() != nullptr)
      throw CallError(CallError::Kind::WouldDeadlock,
                      std::string(call) + " on a device thread would wait for collectives that this thread launches",
                      site);
  }
};

}  // namespace cox
