#pragma once

// The device memory of a client as a memory resource of CCCL. Coxswain does not contain CCCL and does not need it; the
// programs that include this file do.

#if !defined(LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE)
#define LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE  // CCCL up to 3.0 has memory resources only with this
#endif
#if !__has_include(<cuda/memory_resource>)
#error "cuda_memory_resource.hpp needs <cuda/memory_resource> of CCCL, which CUDA 13 has in include/cccl"
#endif
#include <cuda/memory_resource>
#if CCCL_VERSION < 2008000
#error "cuda_memory_resource.hpp needs CCCL 2.8 or newer; the <cuda/memory_resource> that was found is older"
#endif

#include <coxswain/device_handle/base/call_error.hpp>
#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/device_handle/base/stream_id.hpp>
#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/runtime/base/access.hpp>
#include <coxswain/runtime/bytes/bytes.hpp>
#include <coxswain/runtime/error/io_error.hpp>
#include <coxswain/runtime/error/server_error.hpp>
#include <coxswain/runtime/handle/handle.hpp>
#include <coxswain/servers/cuda/server/cuda_server.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <source_location>
#include <string>
#include <thread>
#include <utility>

namespace cox {

/// The memory pool of a CUDA device as a memory resource of CCCL, for containers and libraries that take one: a
/// cuda::mr::async_resource of CCCL 2.8 to 3.0 (CUDA 13.0), a cuda::mr::resource of CCCL 3.1 and newer, whose names for
/// the functions below are allocate, deallocate, allocate_sync and deallocate_sync. Copies share the allocations and
/// compare equal. Any thread but a device thread.
///
/// Memory that is allocated here is memory of the client: it counts in memory_usage() and in the report of an
/// out-of-memory error, and the pool uses it for buffers of the library afterwards, and the other way round. While work
/// that may use freed memory is in flight, only allocations of the thread that freed it get it; afterwards all do. The
/// library does not know what uses the memory meanwhile, so the streams order it:
///
/// - allocate_async(bytes, alignment, stream): the memory may be used by work that is given to `stream` after the call.
///   The stream waits for the earlier users of the memory, as after ComputeClient::ready_on.
/// - deallocate_async(pointer, bytes, alignment, stream): the memory is used again after all work that `stream` was
///   given before the call. Work on other streams must be complete, or `stream` must wait for it. Does not block.
/// - allocate(bytes, alignment): the memory may be used at once, on any stream. Blocks until its earlier users are
///   complete.
/// - deallocate(pointer, bytes, alignment): all work that uses the memory must be complete. Does not block.
///
/// Both allocations block for the device thread, and until the work that the memory waits for has been given to the
/// driver. Memory that a collective has used may be handed out, so the calling thread must have submitted that
/// collective for all ranks that it drives (see docs/embedding.md). `alignment` is a power of 2; `bytes` may be 0, for
/// which the pointer is null. The stream belongs to the client's device and is not in capture.
///
/// Allocations throw IoError AllocationFailed, whose cause is the OutOfMemory error with its report, BufferTooBig,
/// Misaligned; ServerError Graph, Validation; CallError Closed, WouldDeadlock; CudaError. Deallocations throw nothing:
/// after a shutdown of the device, which frees all memory, they do nothing, and other failures are reported as task
/// errors: at once, at this thread's next allocation, or at the shutdown. The memory is then kept until the device is
/// shut down.
class CudaMemoryResource {
 public:
  using Site = std::source_location;

  explicit CudaMemoryResource(CudaClient client) : state_(std::make_shared<State>(std::move(client))) {}

  [[nodiscard]] void* allocate(std::size_t bytes, std::size_t alignment = default_alignment,
                               Site site = Site::current()) {
    if (bytes == 0) return nullptr;
    const CudaClient client = state_->client_of_thread();
    const Made made = make(client, bytes, alignment, site);
    // Waits for all accesses to the allocation.
    client.write(made.window.offset_end(bytes - 1), Bytes::zeroed(1), site);
    try {
      client.sync(site).get();
    } catch (...) {
      if (made.window.failure()) throw;
      report();  // a deallocation that has failed meanwhile
      client.sync(site).get();
    }
    return keep(made);
  }
  void deallocate(void* pointer, std::size_t, std::size_t = default_alignment) noexcept {
    release(pointer, [](const Handle&) {});
  }
  [[nodiscard]] void* allocate_async(std::size_t bytes, std::size_t alignment, ::cuda::stream_ref stream,
                                     Site site = Site::current()) {
    if (bytes == 0) return nullptr;
    const CudaClient client = state_->client_of_thread();
    const Made made = make(client, bytes, alignment, site);
    client.ready_on(made.window, stream.get(), Access::Write, site).get();
    return keep(made);
  }
  [[nodiscard]] void* allocate_async(std::size_t bytes, ::cuda::stream_ref stream, Site site = Site::current()) {
    return allocate_async(bytes, default_alignment, stream, site);
  }
  void deallocate_async(void* pointer, std::size_t, std::size_t, ::cuda::stream_ref stream) noexcept {
    release(pointer, [&](const Handle& memory) { state_->client_of_thread().ready_after(memory, stream.get()); });
  }
  void deallocate_async(void* pointer, std::size_t bytes, ::cuda::stream_ref stream) noexcept {
    deallocate_async(pointer, bytes, default_alignment, stream);
  }

  // The names of CCCL 3.1 and newer.
  [[nodiscard]] void* allocate_sync(std::size_t bytes, std::size_t alignment = default_alignment,
                                    Site site = Site::current()) {
    return allocate(bytes, alignment, site);
  }
  void deallocate_sync(void* pointer, std::size_t bytes, std::size_t alignment = default_alignment) noexcept {
    deallocate(pointer, bytes, alignment);
  }
  [[nodiscard]] void* allocate(::cuda::stream_ref stream, std::size_t bytes, std::size_t alignment,
                               Site site = Site::current()) {
    return allocate_async(bytes, alignment, stream, site);
  }
  void deallocate(::cuda::stream_ref stream, void* pointer, std::size_t bytes, std::size_t alignment) noexcept {
    deallocate_async(pointer, bytes, alignment, stream);
  }

  /// The handle of an allocation, for collectives and launches of the library on it; order these with ready_on and
  /// ready_after. Throws IoError InvalidPointer if `pointer` is not the first byte of an allocation of this resource.
  [[nodiscard]] Handle handle_of(void* pointer, Site site = Site::current()) const {
    const std::lock_guard lock(state_->mutex);
    const auto found = state_->allocations.find(pointer);
    if (found != state_->allocations.end()) return found->second;
    throw IoError(IoError::Kind::InvalidPointer,
                  "the pointer is no allocation of this memory resource of " + state_->device.to_string(), site);
  }

  [[nodiscard]] friend bool operator==(const CudaMemoryResource& a, const CudaMemoryResource& b) noexcept {
    return a.state_ == b.state_;
  }
  friend constexpr void get_property(const CudaMemoryResource&, ::cuda::mr::device_accessible) noexcept {}

 private:
  static constexpr std::size_t default_alignment = ::cuda::mr::default_cuda_malloc_alignment;

  struct State {
    explicit State(CudaClient of) : device(of.device_id()), client(std::move(of)) {}

    /// The client, on a stream that no other thread uses: what it throws is about the calls of this thread alone.
    [[nodiscard]] CudaClient client_of_thread() {
      CudaClient on_stream = client;
      const std::lock_guard lock(mutex);
      const auto [entry, is_new] = streams.try_emplace(std::this_thread::get_id());
      if (is_new) entry->second = StreamId::allocate();
      on_stream.set_stream(entry->second);
      return on_stream;
    }

    const DeviceId device;
    const CudaClient client;
    std::mutex mutex;
    std::map<std::thread::id, StreamId> streams;  // guarded by mutex, like the next
    std::map<void*, Handle> allocations;
  };
  struct Made {
    Handle window;
    void* pointer;
  };

  [[nodiscard]] Made make(const CudaClient& client, std::size_t bytes, std::size_t alignment, const Site& site) const {
    if (!std::has_single_bit(alignment))
      throw IoError(IoError::Kind::Misaligned, "an alignment of " + std::to_string(alignment) + " is no power of 2",
                    site);
    const std::size_t more = alignment > CudaServer::memory_alignment ? alignment : 0;
    if (bytes > std::numeric_limits<std::size_t>::max() - more)
      throw IoError(IoError::Kind::BufferTooBig,
                    std::to_string(bytes) + " bytes, aligned to " + std::to_string(alignment) + ", are too many", site);
    take_failures(client, site);
    const Handle whole = client.empty(bytes + more, site);
    try {
      const std::uint64_t address = client.get_resource(whole, site).resource.address;
      const std::uint64_t begin = more == 0 ? 0 : (alignment - address % alignment) % alignment;
      return {whole.offset_start(begin).offset_end(more - begin), reinterpret_cast<void*>(address + begin)};
    } catch (...) {
      const std::exception_ptr failure = std::current_exception();
      try {
        client.sync(site).get();
      } catch (...) {  // the same failure, which is thrown now
      }
      std::rethrow_exception(failure);
    }
  }
  // What has failed of this thread's deallocations is no failure of its next allocation.
  void take_failures(const CudaClient& client, const Site& site) const {
    try {
      client.flush(site);
    } catch (const ServerError& error) {
      if (error.kind() != ServerError::Kind::Unhealthy) throw;
      report();
    }
  }
  [[nodiscard]] void* keep(const Made& made) {
    const std::lock_guard lock(state_->mutex);
    state_->allocations.emplace(made.pointer, made.window);
    return made.pointer;
  }
  template <class Before>
  void release(void* pointer, Before before) noexcept {
    if (pointer == nullptr) return;
    try {
      const Handle memory = handle_of(pointer, std::source_location());
      before(memory);
      const std::lock_guard lock(state_->mutex);
      state_->allocations.erase(pointer);
    } catch (const CallError& error) {  // the memory of a closed device is free already
      if (error.kind() != CallError::Kind::Closed && error.kind() != CallError::Kind::Forked) report();
    } catch (...) {
      report();
    }
  }
  void report() const noexcept { report_task_error({state_->device, StreamId(), std::current_exception()}); }

  std::shared_ptr<State> state_;
};

#if CCCL_VERSION < 3001000
static_assert(::cuda::mr::async_resource_with<CudaMemoryResource, ::cuda::mr::device_accessible>);
#else
static_assert(::cuda::mr::resource_with<CudaMemoryResource, ::cuda::mr::device_accessible>);
#endif

}  // namespace cox
