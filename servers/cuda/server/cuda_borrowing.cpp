// What a CudaServer does with memory, streams and functions of other owners: see ForeignServer.
#include <coxswain/servers/cuda/server/cuda_server.hpp>

#include <coxswain/device_handle/base/call_error.hpp>
#include <coxswain/runtime/error/io_error.hpp>
#include <coxswain/runtime/error/server_error.hpp>
#include <coxswain/servers/cuda/driver/fault_report.hpp>
#include <coxswain/servers/cuda/peer/launch_gate.hpp>
#include <coxswain/servers/cuda/server/cuda_device.hpp>

#include <bit>
#include <exception>
#include <utility>
#include <vector>

namespace cox {
namespace {

using detail::CudaDevice;
using detail::CudaStream;
using detail::IssueTarget;

std::shared_ptr<detail::CudaContext> context_of(DeviceId device, std::source_location site) {
  if (detail::gpu_faulted()) detail::throw_gpu_fault(site);
  auto context = detail::CudaContext::find(device.index);
  if (context == nullptr) throw CallError(CallError::Kind::Closed, device.to_string() + " was shut down", site);
  return context;
}

// Makes later work on the memory run after the fence. If that cannot be queued or fails, the memory is poisoned.
void queue_fence(CudaDevice& device, CudaStream& stream, const BufferUses& uses, const detail::CudaFencePtr& fence,
                 const Caller& caller) {
  device.submit_unchecked(stream, uses, {"wait for another owner", nullptr, caller.site},
                          [fence, log = device.streams().poison_log(),
                           memory = OperationMemory(uses, caller.site)](const IssueTarget& target) {
                            try {
                              enqueue_wait(*fence, target.stream());
                            } catch (...) {
                              log->set_failed(memory.uses(), std::current_exception(),
                                              MemoryFailure::Contents::Undefined);
                              throw;
                            }
                          });
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

/// A stream of another owner waits for the accesses of one allocation, then the promise is completed.
struct ReadyOn {
  CudaDevice& device;
  Location location;
  NativeCudaStream stream;
  StreamPositions waits;
  OperationMemory memory;
  Promise<void> promise;

  void operator()() noexcept {
    try {
      if (detail::gpu_faulted()) detail::throw_gpu_fault(memory.site());
      device.streams().flush_launches();  // their outcome is known then
      if (const auto refusal = memory.refusal(location)) std::rethrow_exception(refusal);
      std::vector<std::shared_ptr<detail::CudaEvent>> events;
      device.streams().add_events(waits, events);
      for (const auto& event : events) event->enqueue_wait(stream);
    } catch (...) {
      return promise.set_error(std::current_exception());
    }
    promise.set_value();
  }
};

}  // namespace

void CudaServer::require_foreign(DeviceId device, const void* pointer, std::size_t bytes, std::source_location site) {
  detail::require_device_memory(*context_of(device, site), pointer, bytes, site);
}

CudaServer::Fence CudaServer::fence(DeviceId device, const Ready& ready, std::source_location site) {
  return detail::make_fence(*context_of(device, site), ready, site);
}

std::shared_ptr<void> CudaServer::quiesce() { return detail::LaunchGate::of_process().quiesce(); }

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
  CudaStream& stream = device_->enter(caller);
  if (detail::gpu_faulted() || fence == nullptr) return;
  BufferUses uses;
  try {
    stream.capture.require_none("a wait for another owner", caller.site);
    static_cast<void>(device_->resolve(memory, Access::Write, caller, uses));
    queue_fence(*device_, stream, uses, fence, caller);
  } catch (...) {
    stream.fail(std::current_exception());
    device_->poison(uses, std::current_exception(), caller);
  }
}

void CudaServer::ready_on(const Binding& memory, Access access, NativeStream stream, const Caller& caller,
                          Promise<void> promise) {
  CudaStream& own = device_->enter(caller);
  try {
    if (detail::gpu_faulted()) detail::throw_gpu_fault(caller.site);
    own.capture.require_none("a wait on another stream", caller.site);
    const NativeCudaStream native = detail::require_stream(device_->events().context(), stream, caller.site);
    BufferUses uses;
    static_cast<void>(device_->resolve(memory, access, caller, uses));
    StreamPositions waits;
    uses.front().buffer->uses.add_waits(access, no_stream, device_->streams(), waits);
    uses.front().access = Access::Read;  // what the owner of the stream reads must not be poisoned
    const auto ready = std::make_shared<ReadyOn>(
        ReadyOn{*device_, own.location(), native, waits, OperationMemory(uses, caller.site), std::move(promise)});
    device_->streams().when_issued(waits, [ready] { (*ready)(); });
  } catch (...) {
    promise.set_error(std::current_exception());
  }
}

void CudaServer::issued(const Caller& caller, Promise<void> promise) {
  CudaStream& stream = device_->enter(caller);
  try {
    if (detail::gpu_faulted()) detail::throw_gpu_fault(caller.site);
    stream.capture.require_none("a wait for work to be issued", caller.site);
    const auto shared = std::make_shared<Promise<void>>(std::move(promise));
    device_->notify_when_issued(stream, caller.site,
                                [device = device_.get(), collectives = stream.collectives.left(device_->streams()),
                                 shared](const IssueTarget&, const StreamPositions&) {
                                  device->streams().when_issued(collectives, [device, shared] {
                                    device->streams().flush_launches();
                                    shared->set_value();
                                  });
                                });
  } catch (...) {
    promise.set_error(std::current_exception());
  }
}

void CudaServer::call(const LaunchArguments& arguments, NativeCall function, const Caller& caller) {
  CudaStream& stream = device_->enter(caller);
  if (detail::gpu_faulted()) return;
  try {
    BufferUses uses;
    std::vector<void*> pointers;
    for (const KernelBuffer buffer : arguments.buffers)
      pointers.push_back(std::bit_cast<void*>(device_->resolve(buffer, buffer.access, caller, uses).address));
    device_->submit(stream, uses, {"call", nullptr, caller.site},
                    [function = std::move(function), pointers = std::move(pointers)](
                        const IssueTarget& target) mutable { function(target.stream(), pointers); });
  } catch (...) {
    const std::exception_ptr error = std::current_exception();
    stream.fail(error);
    for (const KernelBuffer buffer : arguments.buffers)
      if (writes(buffer.access)) device_->poison_one(buffer, error, caller);
  }
}

bool CudaServer::try_call(const LaunchArguments& arguments, NativeCall& function, const Caller& caller) {
  CudaStream& stream = device_->enter(caller);
  if (!stream.capture.capturing() && !detail::gpu_faulted() &&
      !(stream.queue().pending.empty() &&
        device_->streams().issued(waits_of_call(*device_, stream, arguments, caller))))
    return false;
  call(arguments, std::move(function), caller);
  return true;
}

void CudaServer::when_callable(const LaunchArguments& arguments, const Caller& caller, Promise<void> promise) {
  CudaStream& stream = device_->enter(caller);
  try {
    if (stream.capture.capturing() || detail::gpu_faulted()) return promise.set_value();
    const auto shared = std::make_shared<Promise<void>>(std::move(promise));
    device_->streams().when_issued(waits_of_call(*device_, stream, arguments, caller),
                                   [shared] { shared->set_value(); });
  } catch (...) {
    promise.set_error(std::current_exception());
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
