#pragma once

#include <coxswain/collectives/communicator/communicator.hpp>
#include <coxswain/runtime/client/compute_client.hpp>
#include <coxswain/runtime/client/compute_server.hpp>
#include <coxswain/runtime/communication/membership_epoch.hpp>
#include <coxswain/runtime/launch/submit_mode.hpp>
#include <coxswain/runtime/memory/borrowed_memory.hpp>
#include <coxswain/runtime/tensor/memory_layout_policy.hpp>
#include <coxswain/servers/cuda/device/cuda_devices.hpp>
#include <coxswain/servers/cuda/kernel/cuda_kernel.hpp>
#include <coxswain/servers/cuda/memory/pinned_storage.hpp>
#include <coxswain/servers/cuda/server/cuda_foreign.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace cox {

namespace detail {
class CudaDevice;
}

/// Memory of a GPU, as the CUDA driver and runtime APIs take it.
struct CudaResource {
  std::uint64_t address = 0;  ///< a CUdeviceptr
  std::size_t size = 0;       ///< bytes
  /// The CUstream on which the caller's stream runs, in the device's primary context. Other streams may share it. Work
  /// enqueued on it runs after all work given to the caller's stream before get_resource(), sync_collective() included.
  /// To run it after work that is given later, call flush() first.
  void* stream = nullptr;
};

/// The compute server of a GPU, on the device's primary context, which the CUDA runtime uses too. The device thread
/// checks, orders and issues work; it never waits for the GPU. The streams of the clients share a bounded set of driver
/// streams (setting cuda.streams), and are ordered among each other where they share a buffer. Separate threads make
/// copies between the device and pageable memory. The destructor blocks until all queued work has run, then frees all
/// memory of the device, including memory of handles that are still alive (L13); later use of these throws IoError
/// StaleHandle.
///
/// After a GPU fault (gpu_fault.hpp) no CUDA device carries out a call: launches and writes do nothing, all others, and
/// whatever waits for a stream, fail with CudaError Unhealthy, caused by that fault.
class CudaServer {
 public:
  using Kernel = CudaKernel;
  using Resource = CudaResource;
  using LayoutPolicy = PitchedLayoutPolicy;
  struct Info {
    int compute_major = 0;  ///< of the compute capability: 9 of 9.0
    int compute_minor = 0;
    int multiprocessors = 0;
    int driver_version = 0;   ///< in the driver's numbering: 13000 is 13.0
    std::string bus_id;       ///< PCI bus id
    std::size_t streams = 0;  ///< maximum number of driver streams
  };
  static constexpr bool communication_enabled = true;
  using Communicator = cox::Communicator;
  /// Alignment in bytes of every allocation, and of the rows of optimised layouts.
  static constexpr std::size_t memory_alignment = 512;
  /// Alignment in bytes of every staging buffer.
  static constexpr std::size_t pinned_alignment = detail::cuda_pinned_alignment;

  /// Opens the primary context of the thread's device. Throws CallError UnknownDevice unless it is one of
  /// enumerate_cuda_devices(); CudaError.
  explicit CudaServer(ThreadContext& thread);
  /// As above, for ComputeClient::insert(): the server has no thread until attach().
  explicit CudaServer(DeviceId device);
  CudaServer(CudaServer&&) noexcept;
  CudaServer& operator=(CudaServer&&) noexcept;
  ~CudaServer();

  /// Sets the thread on which all operations are called from now on. Call once, before the first operation.
  void attach(ThreadContext& thread);

  /// The device calls this once, when it takes the server into service; from then on other ranks can communicate with
  /// it.
  [[nodiscard]] std::shared_ptr<const ServerUtilities<CudaServer>> utilities() const;
  [[nodiscard]] static std::vector<DeviceId> enumerate_devices(std::uint16_t type);
  [[nodiscard]] static std::vector<DeviceId> enumerate_all_devices() { return enumerate_cuda_devices(); }

  // See ComputeServer. Device thread only; none of these waits for the GPU.
  bool initialize_memory(ManagedMemory memory, std::size_t size, const Caller& caller);
  void write(Uploads uploads, const Caller& caller);
  void read(Downloads downloads, const Caller& caller, Promise<std::vector<Bytes>> promise);
  void launch(const CudaKernel& kernel, const CubeCount& count, const LaunchArguments& arguments, ExecutionMode mode,
              const Caller& caller, SubmitMode when);
  void sync(const Caller& caller, Promise<void> promise);
  void flush(const Caller& caller);
  [[nodiscard]] MemoryUsage memory_usage(const Caller& caller);
  [[nodiscard]] std::vector<Bytes> staging(std::span<const std::size_t> sizes, const Caller& caller);
  [[nodiscard]] Resource get_resource(const Binding& binding, const Caller& caller);
  void accept(const Binding& memory, const Caller& caller);
  [[nodiscard]] MemoryReport memory_report(const Caller& caller);
  void memory_cleanup(const Caller& caller);
  void allocation_mode(AllocationMode mode, const Caller& caller);
  void install_memory_pools(const MemoryPoolLayout& layout, const Caller& caller);
  [[nodiscard]] ProfilingToken start_profile(const Caller& caller);
  [[nodiscard]] ProfileDuration end_profile(ProfilingToken token, ProfileFailures failures, const Caller& caller);
  void graph_prepare(const Caller& caller);
  void begin_capture(const Caller& caller);
  [[nodiscard]] GraphId end_capture(const Caller& caller);
  /// What makes the graph ready for its first replay, which does it otherwise. To be called after end_capture(), before
  /// a replay, by a thread that may wait: for collectives that are half launched.
  [[nodiscard]] UniqueFunction<void()> make_ready(GraphId graph);
  [[nodiscard]] bool capturing(const Caller& caller);
  void replay(GraphId graph, MembershipEpoch call_epoch, const Caller& caller);
  void graph_destroy(GraphId graph, const Caller& caller);
  void on_task_error(std::exception_ptr error, StreamId stream);
  void report_failures_to(std::optional<StreamId> stream, const Caller& caller);

  // See ForeignServer. Device thread only, unless static; none of these waits for the GPU.
  using Ready = CudaReady;
  using Fence = detail::CudaFencePtr;
  using NativeStream = NativeCudaStream;
  using NativeCall = UniqueFunction<void(NativeCudaStream, std::span<void* const>)>;
  static void require_foreign(DeviceId device, const void* pointer, std::size_t bytes, std::source_location site);
  [[nodiscard]] static Fence fence(DeviceId device, const Ready& ready, std::source_location site);
  [[nodiscard]] static std::shared_ptr<void> quiesce();
  void borrow(ManagedMemory memory, void* pointer, const Fence& fence, const std::shared_ptr<BorrowedMemory>& owner,
              const Caller& caller);
  void wait_for(const Binding& memory, const Fence& fence, const Caller& caller);
  void ready_on(const Binding& memory, Access access, NativeStream stream, const Caller& caller, Promise<void> promise);
  void issued(const Caller& caller, Promise<void> promise);
  void call(const LaunchArguments& arguments, NativeCall function, const Caller& caller);
  bool try_call(const LaunchArguments& arguments, NativeCall& function, const Caller& caller);
  void when_callable(const LaunchArguments& arguments, const Caller& caller, Promise<void> promise);
  [[nodiscard]] StreamId use_stream(NativeStream stream, const Caller& caller);
  void end_use(StreamId stream, const Caller& caller);

  // See KeptServer.
  [[nodiscard]] static std::shared_ptr<KeptStorage> make_kept(DeviceId device, std::size_t bytes,
                                                              std::source_location site);
  [[nodiscard]] static std::shared_ptr<KeptStorage> adopt_kept(DeviceId device, std::size_t bytes,
                                                               const KeptPieceSource& pieces,
                                                               std::source_location site);
  /// The UUID of the GPU.
  [[nodiscard]] static std::string kept_key(DeviceId device);
  static void require_sound_memory(DeviceId device, std::source_location site);
  [[nodiscard]] std::shared_ptr<void> count_kept(std::size_t bytes, const Caller& caller);
  void mark_kept(KeptMarking marking, const Caller& caller);
  void sum_kept(const KeptSumming& summing, const Caller& caller);
  void poison(const Binding& memory, const std::exception_ptr& cause, const Caller& caller);

  // See ServerCommunication. Transfers are peer copies; other collectives use NCCL or, for small sums, our own kernels.
  // If the communicator has devices of other processes, NCCL does all of them.
  [[nodiscard]] static std::shared_ptr<Communicator> communicator(const CommunicationId& devices);
  [[nodiscard]] static std::shared_ptr<Communicator> renew_communicator(const CommunicationId& devices);
  void communicate(const std::shared_ptr<Communicator>& communicator, CollectiveCallList calls, const Caller& caller,
                   SubmitMode when);
  void sync_collective(const Caller& caller);

 private:
  CudaServer(DeviceId device, ThreadContext* thread);

  std::shared_ptr<const ServerUtilities<CudaServer>> utilities_;
  std::unique_ptr<detail::CudaDevice> device_;
};

static_assert(ComputeServer<CudaServer>);

/// A client of a CUDA device.
using CudaClient = ComputeClient<CudaServer>;

// Compiled once, in cuda_client.cpp, and not in every program that uses the client.
extern template class ComputeClient<CudaServer>;

}  // namespace cox
