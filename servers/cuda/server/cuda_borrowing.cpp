// What a CudaServer does with memory, streams and functions of other owners: see ForeignServer.
#include <coxswain/servers/cuda/server/cuda_server.hpp>

#include <coxswain/device_handle/base/call_error.hpp>
#include <coxswain/runtime/error/io_error.hpp>
#include <coxswain/runtime/error/launch_error.hpp>
#include <coxswain/runtime/error/server_error.hpp>
#include <coxswain/runtime/error/stream_errors.hpp>
#include <coxswain/runtime/error/taken_error.hpp>
#include <coxswain/servers/cuda/driver/fault_report.hpp>
#include <coxswain/servers/cuda/peer/launch_gate.hpp>
#include <coxswain/servers/cuda/server/cuda_device.hpp>
#include <coxswain/servers/cuda/server/open_context.hpp>

#include <bit>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace cox {
namespace {

using detail::CudaDevice;
using detail::CudaStream;
using detail::IssueTarget;

/// The wait for a fence, as a piece of a stream. Memory of the pool is not reused before the driver has accepted the
/// wait. If the wait fails, the memory is poisoned and kept until the device is shut down.
class FenceWait {
 public:
  FenceWait(CudaDevice& device, detail::CudaFencePtr fence, const MemoryView& memory, OperationMemory poisoned) noexcept
      : device_(device),
        log_(device.streams().poison_log()),
        fence_(std::move(fence)),
        memory_(device.is_pooled(memory) ? memory : MemoryView()),
        poisoned_(std::move(poisoned)) {}
  FenceWait(FenceWait&&) noexcept = default;
  FenceWait& operator=(FenceWait&&) = delete;
  // If the driver refuses what precedes a piece that is issued later, the piece is destroyed while that is handled.
  ~FenceWait() {
    if (log_ != nullptr && std::current_exception() != nullptr) fail();
  }

  void operator()(const IssueTarget& target) {
    try {
      enqueue_wait(*fence_, target.stream());
    } catch (...) {
      fail();
      log_ = nullptr;
      throw;
    }
    log_ = nullptr;
    memory_ = ManagedMemory();
  }

 private:
  void fail() noexcept {
    log_->set_failed(poisoned_.uses(), std::current_exception(), MemoryFailure::Contents::Undefined);
    device_.keep(memory_);
  }

  CudaDevice& device_;
  std::shared_ptr<detail::PoisonLog> log_;  // null: moved from, or called
  detail::CudaFencePtr fence_;
  ManagedMemory memory_;  // empty: borrowed
  OperationMemory poisoned_;
};

// Makes later work on the memory run after the fence. Throws if that is known to fail.
void queue_fence(CudaDevice& device, CudaStream& stream, const BufferUses& uses, const detail::CudaFencePtr& fence,
                 const Caller& caller) {
  device.submit_unchecked(stream, uses, {"wait for another owner", nullptr, caller.site},
                          FenceWait(device, fence, uses.front().memory, OperationMemory(uses, caller.site)));
}

// What must have been issued before a call on these buffers can be: the stream's work, too.
StreamPositions waits_of_call(CudaDevice& device, CudaStream& stream, const LaunchArguments& arguments,
                              const Caller& caller) {
  BufferUses uses;
  StreamPositions waits = stream.pending_waits(device.streams());
  waits.push_back(stream.queue().last_position());
  try {
    for (const KernelBuffer buffer : arguments.buffers) {
      static_cast<void>(device.resolve(buffer, buffer.access, caller, uses));
      uses.back().buffer->uses.add_waits(buffer.access, stream.slot(), device.streams(), waits);
    }
  } catch (const IoError&) {  // the call itself reports it
  } catch (const ServerError&) {
  }
  return waits;
}

/// A promise that several callables refer to, of which one completes it.
using SharedPromise = std::shared_ptr<std::optional<Promise<void>>>;

/// Moves the promise. Without memory returns null, and the promise has failed.
SharedPromise share(Promise<void>& promise) noexcept {
  try {
    auto shared = std::make_shared<std::optional<Promise<void>>>();
    shared->emplace(std::move(promise));
    return shared;
  } catch (...) {
    promise.set_error(std::current_exception());
    return nullptr;
  }
}

/// Completes the promise at the end of `f`, or with what it throws.
template <class F>
void settle(Promise<void>& promise, F&& f) noexcept {
  try {
    f();
  } catch (...) {
    return promise.set_error(detail::current_error());
  }
  promise.set_value();
}

/// A stream of another owner waits for the accesses of one allocation, then the promise is completed.
struct ReadyOn {
  CudaDevice& device;
  std::shared_ptr<CudaStream> caller;  ///< its errors receive the failure of a future that is dropped
  std::uint64_t sequence;
  NativeCudaStream stream;
  StreamPositions waits;
  OperationMemory memory;
  std::optional<Promise<void>> promise;

  void operator()() noexcept {
    settle(*promise, [this] {
      try {
        make_wait();
      } catch (...) {
        throw detail::StreamErrors::of_operation(caller->errors(), sequence, std::current_exception());
      }
    });
  }

  void make_wait() {
    if (detail::gpu_faulted()) detail::throw_gpu_fault(memory.site());
    device.streams().flush_launches();  // their outcome is known then
    if (const auto refusal = memory.refusal(caller->location())) std::rethrow_exception(refusal);
    std::vector<std::shared_ptr<detail::CudaEvent>> events;
    device.streams().add_events(waits, events);
    for (const auto& event : events) event->enqueue_wait(stream);
  }
};

}  // namespace

void CudaServer::require_foreign(DeviceId device, const void* pointer, std::size_t bytes, std::source_location site) {
  detail::require_device_memory(*detail::open_context(device, site), pointer, bytes, site);
}

CudaServer::Fence CudaServer::fence(DeviceId device, const Ready& ready, std::source_location site) {
  return detail::make_fence(*detail::open_context(device, site), ready, site);
}

std::shared_ptr<void> CudaServer::quiesce() {
  return detail::LaunchGate::of_process().quiesce(detail::LaunchGate::Purpose::Foreign);
}

void CudaServer::borrow(ManagedMemory memory, void* pointer, const Fence& fence,
                        const std::shared_ptr<BorrowedMemory>& owner, const Caller& caller) {
  CudaStream& stream = device_->enter(caller);
  MemoryState& state = memory.state();
  try {
    if (detail::gpu_faulted()) detail::throw_gpu_fault(caller.site);
    stream.capture.require_none("borrowing memory", caller.site);
    state.resource = device_->borrow(std::bit_cast<CUdeviceptr>(pointer), memory.size(), owner);
  } catch (...) {
    state.failure = std::current_exception();
    owner->release();
  }
  state.published.store(true, std::memory_order_release);  // pairs with the acquire in MemoryView::failure
  if (state.failure != nullptr) return stream.fail(state.failure);
  if (fence != nullptr) wait_for({std::move(memory), 0, 0, caller.stream}, fence, caller);
}

void CudaServer::wait_for(const Binding& memory, const Fence& fence, const Caller& caller) {
  CudaStream* stream = nullptr;
  BufferUses uses;
  try {
    stream = &device_->enter(caller);
    if (detail::gpu_faulted() || fence == nullptr) return;
    stream->capture.require_none("a wait for another owner", caller.site);
    static_cast<void>(device_->resolve(memory, Access::Write, caller, uses));
    queue_fence(*device_, *stream, uses, fence, caller);
  } catch (...) {
    device_->keep(memory.memory);  // what the fence stands for may still use it
    if (stream == nullptr) throw;
    stream->fail(std::current_exception());
    device_->poison(uses, std::current_exception(), caller);
  }
}

void CudaServer::ready_on(const Binding& memory, Access access, NativeStream stream, const Caller& caller,
                          Promise<void> promise) {
  CudaStream& own = device_->enter(caller);
  std::shared_ptr<ReadyOn> ready;
  try {
    if (detail::gpu_faulted()) detail::throw_gpu_fault(caller.site);
    own.capture.require_none("a wait on another stream", caller.site);
    const NativeCudaStream native = detail::require_stream(device_->events().context(), stream, caller.site);
    BufferUses uses;
    static_cast<void>(device_->resolve(memory, access, caller, uses));
    StreamPositions waits;
    uses.front().buffer->uses.add_waits(access, no_stream, device_->streams(), waits);
    uses.front().access = Access::Read;  // what the owner of the stream reads must not be poisoned
    OperationMemory used(uses, caller.site);
    ready = std::make_shared<ReadyOn>(ReadyOn{*device_, own.shared_from_this(), own.next_sequence(), native,
                                              std::move(waits), std::move(used), std::nullopt});
  } catch (...) {
    return promise.set_error(
        detail::StreamErrors::of_operation(own.errors(), own.next_sequence(), std::current_exception()));
  }
  ready->promise.emplace(std::move(promise));
  try {
    device_->streams().when_issued(ready->waits, [ready] { (*ready)(); });
  } catch (...) {
    ready->promise->set_error(std::current_exception());
  }
}

void CudaServer::issued(const Caller& caller, Promise<void> promise) {
  CudaStream& stream = device_->enter(caller);
  const SharedPromise shared = share(promise);
  if (shared == nullptr) return;
  try {
    if (detail::gpu_faulted()) detail::throw_gpu_fault(caller.site);
    stream.capture.require_none("a wait for work to be issued", caller.site);
    // Work that runs beside the stream: what others queue on the driver stream runs after that, too.
    StreamPositions beside = stream.collectives.left(device_->streams());
    for (const StreamPosition& transfer : stream.transfers(device_->streams())) beside.push_back(transfer);
    stream.add_pending_waits(beside);
    device_->clear_pending_waits(stream, caller);
    device_->in_turn(stream, caller.site, [shared, site = caller.site](const IssueTarget&) {
      settle(**shared, [&] {
        if (detail::gpu_faulted()) detail::throw_gpu_fault(site);
      });
    });
  } catch (...) {
    (*shared)->set_error(std::current_exception());
  }
}

void CudaServer::call(const LaunchArguments& arguments, NativeCall function, const Caller& caller) {
  CudaStream& stream = device_->enter(caller);
  if (detail::gpu_faulted()) return;
  try {
    if (!arguments.tensor_maps.empty())
      throw LaunchError(LaunchError::Kind::ArgumentType,
                        "a call on " + stream.location().to_string() + " was given " +
                            std::to_string(arguments.tensor_maps.size()) + " tensor maps, which calls do not take",
                        caller.site);
    BufferUses uses;
    std::vector<void*> pointers;
    for (const KernelBuffer buffer : arguments.buffers)
      pointers.push_back(std::bit_cast<void*>(device_->resolve(buffer, buffer.access, caller, uses).address));
    device_->submit(stream, uses, {"call", nullptr, caller.site},
                    [function = std::move(function), pointers = std::move(pointers),
                     &context = device_->events().context()](const IssueTarget& target) mutable {
                      const CUstream native = target.stream();
                      const detail::CurrentContext current(context);  // the function may make another one current
                      function(native, pointers);
                    });
  } catch (...) {
    const std::exception_ptr error = std::current_exception();
    stream.fail(error);
    for (const KernelBuffer buffer : arguments.buffers)
      if (writes(buffer.access)) device_->poison_one(buffer, error, caller);
  }
}

bool CudaServer::try_call(const LaunchArguments& arguments, NativeCall& function, const Caller& caller) {
  CudaStream& stream = device_->enter(caller);
  stream.capture.require_none("a quiet call", caller.site);
  if (!detail::gpu_faulted() && !(stream.queue().pending.empty() &&
                                  device_->streams().issued(waits_of_call(*device_, stream, arguments, caller))))
    return false;
  call(arguments, std::move(function), caller);
  return true;
}

void CudaServer::when_callable(const LaunchArguments& arguments, const Caller& caller, Promise<void> promise) {
  CudaStream& stream = device_->enter(caller);
  const SharedPromise shared = share(promise);
  if (shared == nullptr) return;
  try {
    if (stream.capture.capturing() || detail::gpu_faulted()) return (*shared)->set_value();
    device_->streams().when_issued(waits_of_call(*device_, stream, arguments, caller),
                                   [shared] { (*shared)->set_value(); });
  } catch (...) {
    (*shared)->set_error(std::current_exception());
  }
}

StreamId CudaServer::use_stream(NativeStream stream, const Caller& caller) {
  static_cast<void>(device_->enter(caller));
  if (detail::gpu_faulted()) detail::throw_gpu_fault(caller.site);
  return device_->streams().use_foreign(detail::require_stream(device_->events().context(), stream, caller.site),
                                        caller.site);
}

void CudaServer::end_use(StreamId stream, const Caller& caller) {
  static_cast<void>(device_->enter(caller));
  device_->streams().end_use(stream, caller.site);
}

}  // namespace cox
