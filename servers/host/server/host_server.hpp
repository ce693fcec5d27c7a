#pragma once

#include <coxswain/collectives/communicator/communicator.hpp>
#include <coxswain/runtime/client/compute_client.hpp>
#include <coxswain/runtime/client/compute_server.hpp>
#include <coxswain/runtime/communication/membership_epoch.hpp>
#include <coxswain/runtime/launch/submit_mode.hpp>
#include <coxswain/runtime/memory/borrowed_memory.hpp>
#include <coxswain/runtime/tensor/memory_layout_policy.hpp>
#include <coxswain/servers/host/kernel/host_kernel.hpp>
#include <coxswain/servers/host/memory/host_memory.hpp>
#include <coxswain/servers/host/server/host_options.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <vector>

namespace cox {

namespace detail {
class HostDevice;
}

/// The compute server of a host device: CPU memory with a capacity, and threads that run streams. The device thread
/// only checks, orders and queues; copies and kernels run on the device's threads. The work of one stream runs in
/// order. Different streams run concurrently, but wait for each other on hazards, where they share a buffer (read after
/// write, write after read, write after write). The destructor blocks until all queued work has run, then frees all
/// memory of the device, also that of live handles (L13); using such a handle later is IoError StaleHandle.
class HostServer {
 public:
  using Kernel = HostKernel;
  /// Direct access to the bytes of the memory.
  using Resource = std::span<std::byte>;
  using LayoutPolicy = PitchedLayoutPolicy;
  struct Info {
    std::size_t threads = 0;  ///< number of threads that run the streams
  };
  static constexpr bool communication_enabled = true;
  using Communicator = cox::Communicator;
  /// Alignment in bytes of every allocation, and of the rows of optimised layouts; the same as on GPUs.
  static constexpr std::size_t memory_alignment = detail::host_memory_alignment;
  /// Alignment in bytes of every staging buffer.
  static constexpr std::size_t pinned_alignment = detail::host_pinned_alignment;

  /// Starts the device's threads. Throws CallError UnknownDevice unless the thread's device is one of
  /// host_device_count() devices of type 0.
  explicit HostServer(ThreadContext& thread);
  /// As above, for ComputeClient::insert(): the server has no thread until attach().
  explicit HostServer(DeviceId device);
  HostServer(HostServer&&) noexcept;
  HostServer& operator=(HostServer&&) noexcept;
  ~HostServer();

  /// Sets the thread on which all operations are called from now on. Call once, before the first operation.
  void attach(ThreadContext& thread);

  /// The device reads them once, when it takes the server into service. Other ranks can communicate with the server
  /// from then on.
  [[nodiscard]] std::shared_ptr<const ServerUtilities<HostServer>> utilities() const;
  [[nodiscard]] static std::vector<DeviceId> enumerate_devices(std::uint16_t type);
  [[nodiscard]] static std::vector<DeviceId> enumerate_all_devices() { return enumerate_devices(host_device_type); }

  // See ComputeServer. Device thread only; none of these functions waits for streams.
  bool initialize_memory(ManagedMemory memory, std::size_t size, const Caller& caller);
  void write(Uploads uploads, const Caller& caller);
  void read(Downloads downloads, const Caller& caller, Promise<std::vector<Bytes>> promise);
  void launch(HostKernel kernel, const CubeCount& count, const LaunchArguments& arguments, ExecutionMode mode,
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
  [[nodiscard]] bool capturing(const Caller& caller);
  void replay(GraphId graph, MembershipEpoch call_epoch, const Caller& caller);
  void graph_destroy(GraphId graph, const Caller& caller);
  void on_task_error(std::exception_ptr error, StreamId stream);
  void report_failures_to(std::optional<StreamId> stream, const Caller& caller);

  // See ForeignServer. Device thread only, unless static; none of these waits for streams. A host device has no streams
  // that others could create: memory of another owner is ready when it is borrowed.
  struct Ready {};
  struct Fence {};
  using NativeCall = UniqueFunction<void(std::span<void* const>)>;
  static void require_foreign(DeviceId device, const void* pointer, std::size_t bytes, std::source_location site);
  [[nodiscard]] static Fence fence(DeviceId, const Ready&, std::source_location) { return {}; }
  [[nodiscard]] static std::shared_ptr<void> quiesce() { return nullptr; }  // loading code waits for nothing here
  void borrow(ManagedMemory memory, void* pointer, const Fence& fence, const std::shared_ptr<BorrowedMemory>& owner,
              const Caller& caller);
  void wait_for(const Binding&, const Fence&, const Caller&) {}
  void issued(const Caller& caller, Promise<void> promise);
  void call(const LaunchArguments& arguments, NativeCall function, const Caller& caller);
  bool try_call(const LaunchArguments& arguments, NativeCall& function, const Caller& caller);
  void when_callable(const LaunchArguments&, const Caller&, Promise<void> promise) { promise.set_value(); }

  // See KeptServer.
  [[nodiscard]] static std::shared_ptr<KeptStorage> make_kept(DeviceId device, std::size_t bytes,
                                                              std::source_location site);
  [[nodiscard]] static std::shared_ptr<KeptStorage> adopt_kept(DeviceId device, std::size_t bytes,
                                                               const KeptPieceSource& pieces,
                                                               std::source_location site);
  [[nodiscard]] static std::string kept_key(DeviceId device) { return device.to_string(); }
  static void require_sound_memory(DeviceId /*device*/, std::source_location /*site*/) {}
  [[nodiscard]] std::shared_ptr<void> count_kept(std::size_t bytes, const Caller& caller);
  void mark_kept(KeptMarking marking, const Caller& caller);
  void sum_kept(const KeptSumming& summing, const Caller& caller);
  void poison(const Binding& memory, const std::exception_ptr& cause, const Caller& caller);

  // See ServerCommunication.
  [[nodiscard]] static std::shared_ptr<Communicator> communicator(const CommunicationId& devices);
  [[nodiscard]] static std::shared_ptr<Communicator> renew_communicator(const CommunicationId& devices);
  void communicate(const std::shared_ptr<Communicator>& communicator, CollectiveCallList calls, const Caller& caller,
                   SubmitMode when);
  void sync_collective(const Caller& caller);

 private:
  HostServer(DeviceId device, ThreadContext* thread);

  std::shared_ptr<const ServerUtilities<HostServer>> utilities_;
  std::unique_ptr<detail::HostDevice> device_;
};

static_assert(ComputeServer<HostServer>);

/// A client of a host device.
using HostClient = ComputeClient<HostServer>;

// Compiled once, in host_client.cpp, and not in every program that uses the client.
extern template class ComputeClient<HostServer>;

}  // namespace cox
