#pragma once

#include <coxswain/device_handle/handle/device_handle.hpp>
#include <coxswain/device_handle/observe/task_trace.hpp>
#include <coxswain/device_handle/observe/wait_graph.hpp>
#include <coxswain/device_handle/service/thread_context.hpp>
#include <coxswain/runtime/async/future.hpp>
#include <coxswain/runtime/bytes/lazy_bytes.hpp>
#include <coxswain/runtime/client/apply_settings.hpp>
#include <coxswain/runtime/client/compute_server.hpp>
#include <coxswain/runtime/client/foreign_calls.hpp>
#include <coxswain/runtime/client/foreign_server.hpp>
#include <coxswain/runtime/client/graph.hpp>
#include <coxswain/runtime/communication/collective_calls.hpp>
#include <coxswain/runtime/handle/managed_resource.hpp>
#include <coxswain/runtime/kept/kept_calls.hpp>
#include <coxswain/runtime/launch/kernel_arguments.hpp>
#include <coxswain/runtime/launch/submit_mode.hpp>
#include <coxswain/runtime/memory/borrowed_memory.hpp>
#include <coxswain/runtime/profile/profile_duration.hpp>
#include <coxswain/runtime/tensor/copy_plan.hpp>
#include <coxswain/runtime/tensor/vector_sizes.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace cox {

/// A client of one device. Inexpensive to copy; every copy may be used from any thread. Work belongs to the stream of
/// the calling thread (StreamId::current()), unless set_stream pins the client to another. Work of one stream runs in
/// order. Work of different streams may overlap, except that work that shares a buffer with earlier work of another
/// stream waits for exactly the accesses that conflict.
///
/// create*, empty*, write and launch submit one closure to the device thread and return: they wait neither for the
/// closure nor for the device. Invalid arguments of create* and empty* (such as sizes that do not match) are thrown by
/// the call itself. Any later failure, and every failure of a write or a launch, is kept with the stream. The next
/// read, sync or flush on that stream throws it as ServerError Unhealthy with the first cause first, even if futures
/// were dropped (L12). Every call throws CallError Closed once the shutdown of the device has begun (L4).
///
/// HandleTemplate is DeviceHandle (a device thread of its own) or InlineDeviceHandle (the caller's thread, for
/// debugging).
///
/// For operations that involve clients of other devices see CollectiveCalls, for memory, streams and functions of other
/// owners ForeignCalls, for memory that outlives the process KeptCalls.
template <ComputeServer Server, template <class> class HandleTemplate = DeviceHandle>
class ComputeClient : public CollectiveCalls<Server, ComputeClient<Server, HandleTemplate>>,
                      public ForeignCalls<Server, ComputeClient<Server, HandleTemplate>>,
                      public KeptCalls<Server, ComputeClient<Server, HandleTemplate>> {
 public:
  using Kernel = typename Server::Kernel;
  using Site = std::source_location;

  /// Applies the settings, then finds the device's server or builds it on the device's thread. Blocks while the server
  /// is built; throws what its constructor threw, and ConfigError.
  [[nodiscard]] static ComputeClient load(DeviceId device, Site site = Site::current()) {
    apply_settings();
    return ComputeClient(HandleTemplate<Server>::get(device, site));
  }
  /// Applies the settings, then registers an existing server. Blocks until it is registered; throws CallError
  /// AlreadyRegistered if the device has one, and ConfigError.
  [[nodiscard]] static ComputeClient init(DeviceId device, Server server, Site site = Site::current()) {
    apply_settings();
    return ComputeClient(HandleTemplate<Server>::insert(device, std::move(server), site));
  }

  // Facts, without a round trip to the device
  // ---------------------------------------------------------------------------

  [[nodiscard]] DeviceId device_id() const noexcept { return utilities_->owner.device; }
  [[nodiscard]] const DeviceProperties& properties() const noexcept { return utilities_->properties; }
  [[nodiscard]] const Features& features() const noexcept { return utilities_->properties.features; }
  [[nodiscard]] const typename Server::Info& info() const noexcept { return utilities_->info; }
  /// The devices of that type that this kind of server can open.
  [[nodiscard]] std::vector<DeviceId> enumerate_devices(std::uint16_t type) const {
    return Server::enumerate_devices(type);
  }
  [[nodiscard]] std::vector<DeviceId> enumerate_all_devices() const { return Server::enumerate_all_devices(); }
  [[nodiscard]] std::size_t device_count(std::uint16_t type) const { return Server::enumerate_devices(type).size(); }
  [[nodiscard]] std::size_t device_count_total() const { return Server::enumerate_all_devices().size(); }
  /// The result of cox::io_optimized_vector_sizes for this device.
  [[nodiscard]] VectorSizes io_optimized_vector_sizes(std::size_t elem_size, Site site = Site::current()) const {
    return cox::io_optimized_vector_sizes(utilities_->properties.hardware, elem_size, site);
  }
  /// Whether calls run on the calling thread (InlineDeviceHandle) and not on a device thread.
  [[nodiscard]] static constexpr bool is_blocking() noexcept { return HandleTemplate<Server>::is_blocking(); }
  /// The handle of the device thread, for its statistics and for other services.
  [[nodiscard]] const HandleTemplate<Server>& device_handle() const noexcept { return device_; }

  /// The stream that this client's calls on this thread belong to.
  [[nodiscard]] StreamId stream_id() const noexcept { return stream_ ? *stream_ : StreamId::current(); }
  /// Pins this client, but not its existing copies, to a stream. Must not be called while another thread uses this
  /// object.
  void set_stream(StreamId stream) noexcept { stream_ = stream; }

  // Allocation and upload
  // ----------------------------------------------------------------------------------------------

  /// New memory with a copy of `data`. Prefer create, which does not copy.
  [[nodiscard]] Handle create_from_slice(std::span<const std::byte> data, Site site = Site::current()) const {
    return create(Bytes::copy_of(data), site);
  }
  template <PlainRange Range>
  [[nodiscard]] Handle create_from_slice(const Range& data, Site site = Site::current()) const {
    return create(Bytes::copy_of(data), site);
  }
  /// New memory with the content of `data`, which is released once the device has copied it.
  [[nodiscard]] Handle create(Bytes data, Site site = Site::current()) const {
    auto descriptor = MemoryLayoutDescriptor::contiguous({data.size()}, 1);
    return std::move(create_one(std::move(descriptor), std::move(data), site).memory);
  }
  /// A new tensor with the layout that the device prefers (see PitchedLayoutPolicy), from dense row-major `data`.
  /// Throws IoError SizeMismatch unless `data` has as many bytes as the shape needs.
  [[nodiscard]] MemoryLayout create_tensor(Bytes data, Shape shape, std::size_t elem_size,
                                           Site site = Site::current()) const {
    return create_one(MemoryLayoutDescriptor::optimized(std::move(shape), elem_size), std::move(data), site);
  }
  [[nodiscard]] MemoryLayout create_tensor_from_slice(std::span<const std::byte> data, Shape shape,
                                                      std::size_t elem_size, Site site = Site::current()) const {
    return create_tensor(Bytes::copy_of(data), std::move(shape), elem_size, site);
  }
  template <PlainRange Range>
  [[nodiscard]] MemoryLayout create_tensor_from_slice(const Range& data, Shape shape, std::size_t elem_size,
                                                      Site site = Site::current()) const {
    return create_tensor(Bytes::copy_of(data), std::move(shape), elem_size, site);
  }
  /// New tensors in one allocation, in order.
  [[nodiscard]] SmallVector<MemoryLayout, 1> create_tensors(
      std::vector<std::pair<MemoryLayoutDescriptor, Bytes>> tensors, Site site = Site::current()) const;
  [[nodiscard]] SmallVector<MemoryLayout, 1> create_tensors_from_slices(
      const std::vector<std::pair<MemoryLayoutDescriptor, std::span<const std::byte>>>& tensors,
      Site site = Site::current()) const;
  /// As create_from_slice, through staging memory: the upload itself is then one direct copy. Blocks for the device
  /// thread.
  [[nodiscard]] Handle create_from_slice_pinned(std::span<const std::byte> data, Site site = Site::current()) const {
    return create(staged(data, site), site);
  }
  template <PlainRange Range>
  [[nodiscard]] Handle create_from_slice_pinned(const Range& data, Site site = Site::current()) const {
    return create_from_slice_pinned(bytes_of(data), site);
  }
  /// As create_tensors_from_slices, through staging memory. Blocks for the device thread.
  [[nodiscard]] SmallVector<MemoryLayout, 1> create_tensors_from_slices_pinned(
      const std::vector<std::pair<MemoryLayoutDescriptor, std::span<const std::byte>>>& tensors,
      Site site = Site::current()) const;
  /// New memory with undefined content.
  [[nodiscard]] Handle empty(std::size_t size, Site site = Site::current()) const {
    return std::move(empty_one(MemoryLayoutDescriptor::contiguous({size}, 1), site).memory);
  }
  [[nodiscard]] MemoryLayout empty_tensor(Shape shape, std::size_t elem_size, Site site = Site::current()) const {
    return empty_one(MemoryLayoutDescriptor::optimized(std::move(shape), elem_size), site);
  }
  /// New tensors in one allocation, in order.
  [[nodiscard]] SmallVector<MemoryLayout, 1> empty_tensors(const std::vector<MemoryLayoutDescriptor>& tensors,
                                                           Site site = Site::current()) const {
    AllocationLayout layout = lay_out(utilities_->layout_policy, utilities_->owner, stream_id(), tensors, site);
    submit_allocation(std::move(layout.base), {}, site);
    return std::move(layout.parts);
  }
  /// Overwrites the memory of the handle in place. The sizes must be equal. Does not block, and throws nothing about
  /// the arguments: like every failure of a write, a size mismatch (IoError SizeMismatch) joins the stream's errors.
  void write(const Handle& handle, Bytes data, Site site = Site::current()) const {
    write_tensor(handle.copy_descriptor({handle.size_in_used()}, {1}, 1), std::move(data), site);
  }
  /// Overwrites a tensor in place from dense row-major `data`. Fails as write does.
  void write_tensor(CopyDescriptor destination, Bytes data, Site site = Site::current()) const {
    submit_write({std::move(destination), on_host(std::move(data))}, site);
  }

  /// Declares the allocation valid from here on in stream order, even if operations on it have failed (L14): the caller
  /// asserts that its contents may be used as they are. Does not block. Fails as write does.
  void accept(const Handle& handle, Site site = Site::current()) const {
    submit(site, "accept",
           [binding = handle.binding()](Server& server, const Caller& caller) { server.accept(binding, caller); });
  }

  // Staging
  // ------------------------------------------------------------------------------------------------------------

  /// Host buffers of these sizes that the device copies from directly, with undefined content; zeroed heap memory if
  /// the server has no staging memory left. Blocks for the device thread.
  [[nodiscard]] std::vector<Bytes> reserve_staging(std::span<const std::size_t> sizes,
                                                   Site site = Site::current()) const;
  /// Replaces buffers by staging memory with the same content, copied on this thread: buffers of files and, unless
  /// `file_only`, buffers in pageable memory. If the server has no staging memory left, the buffers are unchanged.
  /// Blocks for the device thread, and while files are read; throws IoError FileUnreadable, FileTooShort.
  void staging(std::span<Bytes> buffers, bool file_only = false, Site site = Site::current()) const;

  // Download
  // -----------------------------------------------------------------------------------------------------------

  /// The bytes of each handle's window, padding included, read in stream order. Does not block.
  [[nodiscard]] Future<std::vector<Bytes>> read_async(std::span<const Handle> handles,
                                                      Site site = Site::current()) const {
    return submit_read(whole(handles), site);
  }
  [[nodiscard]] Future<std::vector<Bytes>> read_async(const std::vector<Handle>& handles,
                                                      Site site = Site::current()) const {
    return submit_read(whole(handles), site);
  }
  /// Completes any Asio token with (std::exception_ptr, std::vector<Bytes>). An exception that read_async without a
  /// token would throw completes the token instead: a coroutine catches it at its co_await. All overloads with a token
  /// do so.
  template <class CompletionToken>
    requires(!std::same_as<std::remove_cvref_t<CompletionToken>, Site>)
  auto read_async(std::span<const Handle> handles, CompletionToken&& token, Site site = Site::current()) const {
    return Future<std::vector<Bytes>>::start_async([&] { return submit_read(whole(handles), site); },
                                                   std::forward<CompletionToken>(token));
  }
  /// As read_async; blocks for the result. Throws CallError WouldDeadlock in a task of this server itself (L10).
  [[nodiscard]] std::vector<Bytes> read(std::span<const Handle> handles, Site site = Site::current()) const {
    return blocking_read(whole(handles), site);
  }
  [[nodiscard]] std::vector<Bytes> read(const std::vector<Handle>& handles, Site site = Site::current()) const {
    return blocking_read(whole(handles), site);
  }
  [[nodiscard]] Bytes read_one(const Handle& handle, Site site = Site::current()) const {
    return std::move(blocking_read(whole({&handle, 1}), site).front());
  }
  /// Dense row-major bytes of each tensor. Strides must be row-major with padding of the last dimension only, as in
  /// every layout that this client creates. Does not block.
  [[nodiscard]] Future<std::vector<Bytes>> read_tensor_async(std::vector<CopyDescriptor> tensors,
                                                             Site site = Site::current()) const {
    return submit_read(moved(std::move(tensors)), site);
  }
  template <class CompletionToken>
    requires(!std::same_as<std::remove_cvref_t<CompletionToken>, Site>)
  auto read_tensor_async(std::vector<CopyDescriptor> tensors, CompletionToken&& token,
                         Site site = Site::current()) const {
    return Future<std::vector<Bytes>>::start_async([&] { return submit_read(moved(std::move(tensors)), site); },
                                                   std::forward<CompletionToken>(token));
  }
  /// As read_tensor_async; blocks for the result.
  [[nodiscard]] std::vector<Bytes> read_tensor(std::vector<CopyDescriptor> tensors, Site site = Site::current()) const {
    return blocking_read(moved(std::move(tensors)), site);
  }
  [[nodiscard]] Bytes read_one_tensor(CopyDescriptor tensor, Site site = Site::current()) const {
    Downloads downloads;
    downloads.push_back(std::move(tensor));
    return std::move(blocking_read(std::move(downloads), site).front());
  }
  /// As read_tensor_async, for one tensor: the vector has one element.
  [[nodiscard]] Future<std::vector<Bytes>> read_one_tensor_async(CopyDescriptor tensor,
                                                                 Site site = Site::current()) const {
    Downloads downloads;
    downloads.push_back(std::move(tensor));
    return submit_read(std::move(downloads), site);
  }
  template <class CompletionToken>
    requires(!std::same_as<std::remove_cvref_t<CompletionToken>, Site>)
  auto read_one_tensor_async(CopyDescriptor tensor, CompletionToken&& token, Site site = Site::current()) const {
    return Future<std::vector<Bytes>>::start_async([&] { return read_one_tensor_async(std::move(tensor), site); },
                                                   std::forward<CompletionToken>(token));
  }
  /// Bytes that are downloaded at the first access, with the contents that the memory has then: see lazy_bytes.
  /// Their property is Device. Does not block; throws as a read would for an invalid tensor.
  [[nodiscard]] Bytes read_lazy(const Handle& handle, Site site = Site::current()) const {
    return read_lazy(handle.copy_descriptor({handle.size_in_used()}, {1}, 1), site);
  }
  [[nodiscard]] Bytes read_lazy(CopyDescriptor tensor, Site site = Site::current()) const {
    return lazy_bytes(*this, std::move(tensor), site);
  }

  /// The storage itself, which is kept as long as the result lives. Access to it is not synchronised with the work of
  /// the device: call sync() first. Blocks for the device thread. Throws IoError.
  [[nodiscard]] ManagedResource<typename Server::Resource> get_resource(const Handle& handle,
                                                                        Site site = Site::current()) const {
    return {device_.submit_blocking([binding = handle.binding(), caller = Caller{stream_id(), site}](
                                        Server& server) { return server.get_resource(binding, caller); },
                                    site),
            handle.memory().memory()};
  }

  // Work
  // ---------------------------------------------------------------------------------------------------------------

  /// Queues the kernel on the stream. A launch with a static count of which an extent is zero does nothing. The first
  /// launch of a kernel that must be compiled blocks for the compilation, whose failure becomes a failure of the
  /// launch. From profile level basic on (setting profiling.level) a launch blocks for the device thread, and the
  /// duration of the kernel is measured. The kernel is copied or moved once, into its slot in the queue; so are
  /// arguments passed as an rvalue. `mode` is for host kernels; a CUDA kernel runs as it was compiled.
  template <class K = Kernel>
    requires std::convertible_to<K&&, Kernel>
  void launch(K&& kernel, CubeCount count, KernelArguments&& arguments, ExecutionMode mode = ExecutionMode::Checked,
              Site site = Site::current()) const {
    if (count.is_empty()) return;
    if constexpr (!std::same_as<std::remove_cvref_t<K>, Kernel>) {
      launch(Kernel(std::forward<K>(kernel)), std::move(count), std::move(arguments), mode, site);
    } else {
      if constexpr (requires { std::as_const(kernel).prepare(device_id()); })
        std::as_const(kernel).prepare(device_id());
      if (utilities_->profiler.level() != ProfileLevel::Disabled) [[unlikely]]
        return launch_profiled(std::forward<K>(kernel), std::move(count), std::move(arguments), mode, site);
      submit_launch(std::forward<K>(kernel), count, arguments, mode, site);
    }
  }
  template <class K = Kernel>
    requires std::convertible_to<K&&, Kernel>
  void launch(K&& kernel, CubeCount count, const KernelArguments& arguments,
              ExecutionMode mode = ExecutionMode::Checked, Site site = Site::current()) const {
    launch(std::forward<K>(kernel), std::move(count), KernelArguments(arguments), mode, site);
  }
  /// As launch, in mode Unchecked unless the setting compilation.check_mode selects another mode. In mode Unchecked,
  /// access of a host kernel beyond a buffer is undefined behaviour. For CUDA kernels the same as launch.
  template <class K = Kernel>
    requires std::convertible_to<K&&, Kernel>
  void launch_unchecked(K&& kernel, CubeCount count, KernelArguments&& arguments, Site site = Site::current()) const {
    launch(std::forward<K>(kernel), std::move(count), std::move(arguments), unchecked_mode(utilities_->check_mode),
           site);
  }
  template <class K = Kernel>
    requires std::convertible_to<K&&, Kernel>
  void launch_unchecked(K&& kernel, CubeCount count, const KernelArguments& arguments,
                        Site site = Site::current()) const {
    launch_unchecked(std::forward<K>(kernel), std::move(count), KernelArguments(arguments), site);
  }
  /// Calls `f()` on the device thread without calls of other clients in between, and measures how long the device works
  /// on what `f` queues on this stream. Profiles nest. Returns the result of `f` and the duration, or only the duration
  /// if `f` returns void; rethrows what `f` threw. Failures of the profiled work are reported by the duration
  /// (ProfileError) instead of the stream; they stay with the stream if the duration is dropped before its result is
  /// taken, or if `f` threw. Blocks for the device thread, not for the work. Throws ServerError Graph in a capture.
  template <class F>
  auto profile(F&& f, Site site = Site::current()) const {
    return measure(std::forward<F>(f), ProfileFailures::OfProfile, site);
  }

  // Graphs
  // -------------------------------------------------------------------------------------------------------------

  /// Begins the warm-up of a capture: the stream's work from here to graph_start_capture runs as usual, and the memory
  /// that it uses is kept for the capture. Blocks for the device thread. Throws ServerError: Graph if the stream is
  /// already preparing or capturing a graph, Unhealthy for failures of earlier work.
  void graph_prepare(Site site = Site::current()) const {
    device_.submit_blocking([caller = Caller{stream_id(), site}](Server& server) { server.graph_prepare(caller); },
                            site);
  }
  /// Begins the capture: the stream's work from here to graph_stop_capture is recorded instead of run. Launches, writes
  /// and allocations can be recorded, and also collectives and transfers: every replay submits these anew, in order
  /// with the rest of the work, and the other ranks must replay them too or submit the same operations.
  /// During the capture read, sync, flush and profile fail with ServerError Graph, and so does an allocation that would
  /// need growth of the pool. On other streams, uses of memory that the capture writes fail with ServerError Graph
  /// until it ends. A launch with a dynamic cube count is recorded by host devices, and every replay reads the count
  /// anew; on CUDA devices it fails the capture, since a graph of the driver has a fixed count. Blocks for the device
  /// thread. Throws as graph_prepare.
  void graph_start_capture(Site site = Site::current()) const {
    device_.submit_blocking([caller = Caller{stream_id(), site}](Server& server) { server.begin_capture(caller); },
                            site);
  }
  /// Ends the capture, even if it failed. The graph keeps all memory that its work touches: handles stay valid between
  /// replays and may be dropped. Blocks for the device thread; on GPUs also until no collective is half launched, at
  /// most for some seconds, and now and then for the kernels that run on the GPU. Throws ServerError Graph, with the
  /// failure of the capture as its cause.
  [[nodiscard]] Graph<ComputeClient> graph_stop_capture(Site site = Site::current()) const {
    ComputeClient self = *this;
    self.set_stream(stream_id());
    const GraphId id = device_.submit_blocking(
        [caller = Caller{stream_id(), site}](Server& server) { return server.end_capture(caller); }, site);
    Graph<ComputeClient> graph(self, id, site);
    if constexpr (requires(Server& server) { server.make_ready(id); }) {
      if (ThreadContext::current() == nullptr)  // a device thread may not wait for what this waits for
        device_.submit_blocking([id](Server& server) { return server.make_ready(id); }, site)();
    }
    return graph;
  }

  // Synchronisation, memory pools and exclusive access
  // ---------------------------------------------------------------------------------------------------

  /// Throws the failures of the stream that are known so far. Blocks for the device thread, not for work that still
  /// runs.
  void flush(Site site = Site::current()) const {
    device_.submit_blocking([caller = Caller{stream_id(), site}](Server& server) { server.flush(caller); }, site);
  }
  /// Completes when all work of the stream so far is complete, including the collectives and transfers that were
  /// submitted on it (L15); the table of measured launches has then been logged. Does not block. Later work of the
  /// stream does not wait for these collectives either. A thread that drives several ranks must submit for all of them
  /// before it waits for one: see sync_all().
  [[nodiscard]] Future<void> sync(Site site = Site::current()) const;
  /// Completes any Asio token with (std::exception_ptr).
  template <class CompletionToken>
    requires(!std::same_as<std::remove_cvref_t<CompletionToken>, Site>)
  auto sync(CompletionToken&& token, Site site = Site::current()) const {
    return Future<void>::start_async([&] { return sync(site); }, std::forward<CompletionToken>(token));
  }
  /// For a helper whose client is pinned to a stream of its own. From now on, failures of collectives and transfers
  /// that are queued on that stream, and of work that cannot be queued there, are also failures of `stream`, and of all
  /// other streams for which this was called. The next blocking call on each of them throws a failure once; if a future
  /// of the helper's stream delivers it first, none of them does (L12). A capture on `stream` fails with ServerError
  /// Graph, since it cannot record work of another stream. Does not block.
  void report_failures_to(StreamId stream, Site site = Site::current()) const {
    submit(site, "report_failures_to",
           [stream](Server& server, const Caller& caller) { server.report_failures_to(stream, caller); });
  }
  /// Ends report_failures_to: failures of work that is queued on this client's stream from now on are reported to no
  /// other stream. Does not block.
  void end_failure_reports(Site site = Site::current()) const {
    submit(site, "end_failure_reports",
           [](Server& server, const Caller& caller) { server.report_failures_to(std::nullopt, caller); });
  }
  /// The memory usage of the whole device. Blocks for the device thread. Throws ServerError Unhealthy while the stream
  /// has failures that no read, sync or flush has thrown yet.
  [[nodiscard]] MemoryUsage memory_usage(Site site = Site::current()) const {
    return device_.submit_blocking(
        [caller = Caller{stream_id(), site}](Server& server) { return server.memory_usage(caller); }, site);
  }
  /// How the memory of the whole device is used, by the source lines that allocated it. Blocks for the device thread,
  /// which visits every allocation. Throws as memory_usage.
  [[nodiscard]] MemoryReport memory_report(Site site = Site::current()) const {
    return device_.submit_blocking(
        [caller = Caller{stream_id(), site}](Server& server) { return server.memory_report(caller); }, site);
  }
  /// Returns memory to the system that no work uses any more. Does not block. A CUDA device keeps page-locked memory
  /// for reuse until it is shut down: the driver waits for running kernels before it frees such memory.
  void memory_cleanup(Site site = Site::current()) const {
    submit(site, "memory_cleanup", [](Server& server, const Caller& caller) { server.memory_cleanup(caller); });
  }
  /// With Persistent, later allocations of the stream come from the pool for long-lived memory, until Auto has been set
  /// as often as Persistent. Prefer memory_persistent_allocation. Does not block.
  void allocation_mode(AllocationMode mode, Site site = Site::current()) const {
    submit(site, "allocation_mode",
           [mode](Server& server, const Caller& caller) { server.allocation_mode(mode, caller); });
  }
  /// Calls `f()` on this thread and returns its result. Memory that it allocates on this stream is persistent: it comes
  /// from a pool that is separate from that for short-lived memory. Nests; also ends when `f` throws. Does not block.
  template <class F>
  decltype(auto) memory_persistent_allocation(F&& f, Site site = Site::current()) const {
    ComputeClient pinned = *this;
    pinned.set_stream(stream_id());
    const PersistentWindow window(pinned, site);
    return std::invoke(std::forward<F>(f));
  }
  /// Rebuilds the device's memory pools. Blocks for the device thread. Throws ServerError Validation if the layout is
  /// invalid, or while there are allocations or queued work that touches memory: drop the handles, then sync.
  void install_memory_pools(const MemoryPoolLayout& layout, Site site = Site::current()) const {
    device_.submit_blocking(
        [&layout, caller = Caller{stream_id(), site}](Server& server) { server.install_memory_pools(layout, caller); },
        site);
  }
  /// Calls `f()` on the device thread and returns its result, or rethrows what it threw. Calls of this client inside it
  /// run inline, without calls of other clients in between. Blocks.
  template <class F>
  decltype(auto) exclusive(F&& f, Site site = Site::current()) const {
    return device_.exclusive(std::forward<F>(f), site);
  }
  /// As exclusive. Throws CallError Expired if `f` has not started by the deadline of the options, and Cancelled if it
  /// has not started when their stop_token is triggered.
  template <class F>
  decltype(auto) exclusive(F&& f, CallOptions options) const {
    return device_.exclusive(std::forward<F>(f), std::move(options));
  }

 private:
  friend CollectiveCalls<Server, ComputeClient>;
  friend ForeignCalls<Server, ComputeClient>;
  friend KeptCalls<Server, ComputeClient>;
  friend Graph<ComputeClient>;

  [[nodiscard]] PendingCollectives::Call pending_collective() const noexcept {
    return PendingCollectives::Call(utilities_->pending_collectives);
  }
  explicit ComputeClient(HandleTemplate<Server> device) : device_(std::move(device)), utilities_(device_.utilities()) {}

  class PersistentWindow {
   public:
    PersistentWindow(const ComputeClient& client, const Site& site) : client_(client), site_(site) {
      client_.allocation_mode(AllocationMode::Persistent, site_);
    }
    PersistentWindow(const PersistentWindow&) = delete;
    PersistentWindow& operator=(const PersistentWindow&) = delete;
    ~PersistentWindow() {
      try {
        client_.allocation_mode(AllocationMode::Auto, site_);
      } catch (const CallError& error) {
        // A closed device has closed its windows.
        if (error.kind() != CallError::Kind::Closed && error.kind() != CallError::Kind::Forked) report();
      } catch (...) {
        report();
      }
    }

   private:
    // Closing failed: the window stays open. A destructor cannot throw, so this is reported as a task error (L12).
    void report() const noexcept {
      report_task_error({client_.device_id(), client_.stream_id(), std::current_exception()});
    }

    const ComputeClient& client_;
    Site site_;
  };

  template <ForeignServer S = Server>
  [[nodiscard]] Handle lend(void* pointer, std::size_t bytes, typename S::Fence fence,
                            std::shared_ptr<BorrowedMemory> owner, const Site& site) const {
    ManagedMemory memory = ManagedMemory::create(utilities_->owner, bytes);
    Handle handle(ManagedMemoryHandle(memory), stream_id());
    submit(site, "borrow",
           [memory = std::move(memory), pointer, fence = std::move(fence), owner = std::move(owner)](
               Server& server, const Caller& caller) mutable {
             server.borrow(std::move(memory), pointer, fence, owner, caller);
           });
    return handle;
  }

  // Submits the closure of a launch. It is constructed in place in the queue, and packed into as few cache lines as
  // possible. Inline: as a function of the library it made a launch of four buffers 8 % slower.
  template <class K>
  void submit_launch(K&& kernel, CubeCount& count, KernelArguments& arguments, ExecutionMode mode,
                     const Site& site) const {
    const auto post = [&]<class Arguments>(std::type_identity<Arguments>, auto&& launch_count) {
      const auto make = [&] {
        return [kernel = Kernel(std::forward<K>(kernel)), count = std::forward<decltype(launch_count)>(launch_count),
                mode, site, arguments = Arguments(std::move(arguments))](Server& server) mutable {
          launch_on_server(server, std::move(kernel), count, arguments.view(), mode, site);
        };
      };
      device_.submit_in_place(make, site);
    };
    on_stream([&] {
      if (const CubeCount::Static* const known = count.as_static();
          known != nullptr && KernelArguments::Compact::fits(arguments)) {
        post(std::type_identity<KernelArguments::Compact>(), CubeCount::Static(*known));
      } else {
        post(std::type_identity<KernelArguments>(), std::move(count));
      }
    });
  }
  // Not inline, nor are the functions below: see `extern template` in the headers of the servers.
  static void launch_on_server(Server& server, Kernel&& kernel, const CubeCount& count,
                               const LaunchArguments& arguments, ExecutionMode mode, const Site& site);
  void launch_profiled(Kernel kernel, CubeCount count, KernelArguments arguments, ExecutionMode mode, Site site) const;
  bool launch_measured(const std::string& name, Kernel& kernel, CubeCount& count, KernelArguments& arguments,
                       ExecutionMode mode, const Site& site) const;
  template <class F>
  auto measure(F&& f, ProfileFailures failures, const Site& site) const;
  void close_profile(ProfilingToken token, ProfileFailures failures, const Caller& caller) const noexcept;
  Bytes staged(std::span<const std::byte> data, const Site& site) const;
  [[nodiscard]] static std::string profile_name(const Kernel& kernel, const CubeCount& count);

  /// Submits `f(server, caller)` to the device thread and does not wait. What `f` throws joins the errors of the
  /// stream. `operation`: the name shown in traces.
  template <class F>
  void submit(const Site& site, const char* operation, F&& f) const {
    on_stream([&] {
      device_.submit(
          [f = std::forward<F>(f), caller = Caller{stream_id(), site}, operation](Server& server) mutable {
            name_operation(operation);
            f(server, caller);
          },
          site);
    });
  }
  template <class F>
  void on_stream(F&& post) const {
    if (!stream_) return post();
    const StreamScope scope(*stream_);
    post();
  }

  void submit_allocation(Handle base, Uploads uploads, const Site& site) const;
  void submit_write(Upload upload, const Site& site) const;

  MemoryLayout empty_one(MemoryLayoutDescriptor tensor, const Site& site) const {
    AllocationLayout layout = lay_out(utilities_->layout_policy, utilities_->owner, stream_id(), {&tensor, 1}, site);
    submit_allocation(std::move(layout.base), {}, site);
    return std::move(layout.parts.front());
  }

  MemoryLayout create_one(MemoryLayoutDescriptor tensor, Bytes data, const Site& site) const {
    AllocationLayout layout = lay_out(utilities_->layout_policy, utilities_->owner, stream_id(), {&tensor, 1}, site);
    Uploads uploads;
    uploads.push_back(upload_of(std::move(tensor), layout.parts.front(), std::move(data), site));
    submit_allocation(std::move(layout.base), std::move(uploads), site);
    return std::move(layout.parts.front());
  }

  // Downloads lazy bytes of a device here, on the calling thread: if a stream did so while it copies them to another
  // location, the download would wait for that stream itself.
  static Bytes on_host(Bytes data) {
    if (data.property() == AllocationProperty::Device) static_cast<void>(std::as_const(data).data());
    return data;
  }
  static Upload upload_of(MemoryLayoutDescriptor tensor, const MemoryLayout& layout, Bytes data, const Site& site) {
    CopyDescriptor destination = layout.copy_descriptor(std::move(tensor.shape), tensor.elem_size);
    require_host_size(plan_copy(destination, site), destination, data.size(), site);
    return {std::move(destination), on_host(std::move(data))};
  }

  static Downloads whole(std::span<const Handle> handles) {
    Downloads downloads;
    downloads.reserve(handles.size());
    for (const Handle& handle : handles) downloads.push_back(handle.copy_descriptor({handle.size_in_used()}, {1}, 1));
    return downloads;
  }
  static Downloads moved(std::vector<CopyDescriptor> tensors) {
    return {std::move_iterator(tensors.begin()), std::move_iterator(tensors.end())};
  }

  // As submit, with a promise that `f` completes.
  template <class F>
  Future<void> submit_promise(const Site& site, const char* operation, F&& f) const {
    Promise<void> promise(utilities_->completion_thread);
    promise.queued_at(device_.wait_node());
    Future<void> future = promise.future();
    submit(site, operation,
           [f = std::forward<F>(f), promise = std::move(promise)](Server& server, const Caller& caller) mutable {
             promise.begin();
             f(server, caller, std::move(promise));
           });
    return future;
  }
  Future<std::vector<Bytes>> submit_read(Downloads downloads, const Site& site) const;
  std::vector<Bytes> blocking_read(Downloads downloads, const Site& site) const;

  HandleTemplate<Server> device_;
  std::shared_ptr<const ServerUtilities<Server>> utilities_;
  std::optional<StreamId> stream_;
};

template <ComputeServer Server, template <class> class HandleTemplate>
void ComputeClient<Server, HandleTemplate>::submit_allocation(Handle base, Uploads uploads, const Site& site) const {
  const std::size_t size = base.size();
  submit(site, "create",
         [memory = std::move(base).binding().memory, size, uploads = std::move(uploads)](Server& server,
                                                                                         const Caller& caller) mutable {
           const bool usable = server.initialize_memory(std::move(memory), size, caller);
           if (usable && !uploads.empty()) server.write(std::move(uploads), caller);
         });
}

template <ComputeServer Server, template <class> class HandleTemplate>
void ComputeClient<Server, HandleTemplate>::submit_write(Upload upload, const Site& site) const {
  Uploads uploads;
  uploads.push_back(std::move(upload));
  submit(site, "write", [uploads = std::move(uploads)](Server& server, const Caller& caller) mutable {
    server.write(std::move(uploads), caller);
  });
}

template <ComputeServer Server, template <class> class HandleTemplate>
Future<std::vector<Bytes>> ComputeClient<Server, HandleTemplate>::submit_read(Downloads downloads,
                                                                              const Site& site) const {
  Promise<std::vector<Bytes>> promise(utilities_->completion_thread);
  promise.queued_at(device_.wait_node());
  Future<std::vector<Bytes>> future = promise.future();
  submit(
      site, "read",
      [downloads = std::move(downloads), promise = std::move(promise)](Server& server, const Caller& caller) mutable {
        promise.begin();
        server.read(std::move(downloads), caller, std::move(promise));
      });
  return future;
}

template <ComputeServer Server, template <class> class HandleTemplate>
std::vector<Bytes> ComputeClient<Server, HandleTemplate>::blocking_read(Downloads downloads, const Site& site) const {
  if (!HeldNode::any_held()) return submit_read(std::move(downloads), site).get();
  // The calling thread may be the device thread: a queued closure would wait for its own caller, so submit_blocking
  // runs it now or throws (L10).
  Promise<std::vector<Bytes>> promise(utilities_->completion_thread);
  Future<std::vector<Bytes>> future = promise.future();
  device_.submit_blocking([&, caller = Caller{stream_id(), site}](
                              Server& server) { server.read(std::move(downloads), caller, std::move(promise)); },
                          site);
  return future.get();
}

template <ComputeServer Server, template <class> class HandleTemplate>
Future<void> ComputeClient<Server, HandleTemplate>::sync(Site site) const {
  Promise<void> promise(utilities_->completion_thread);
  promise.queued_at(device_.wait_node());
  Future<void> future = promise.future();
  submit(site, "sync", [promise = std::move(promise)](Server& server, const Caller& caller) mutable {
    promise.begin();
    server.sync(caller, std::move(promise));
  });
  return future;
}

template <ComputeServer Server, template <class> class HandleTemplate>
SmallVector<MemoryLayout, 1> ComputeClient<Server, HandleTemplate>::create_tensors(
    std::vector<std::pair<MemoryLayoutDescriptor, Bytes>> tensors, Site site) const {
  std::vector<MemoryLayoutDescriptor> descriptors;
  descriptors.reserve(tensors.size());
  for (const auto& tensor : tensors) descriptors.push_back(tensor.first);
  AllocationLayout layout = lay_out(utilities_->layout_policy, utilities_->owner, stream_id(), descriptors, site);
  Uploads uploads;
  uploads.reserve(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i)
    uploads.push_back(upload_of(std::move(descriptors[i]), layout.parts[i], std::move(tensors[i].second), site));
  submit_allocation(std::move(layout.base), std::move(uploads), site);
  return std::move(layout.parts);
}

template <ComputeServer Server, template <class> class HandleTemplate>
SmallVector<MemoryLayout, 1> ComputeClient<Server, HandleTemplate>::create_tensors_from_slices(
    const std::vector<std::pair<MemoryLayoutDescriptor, std::span<const std::byte>>>& tensors, Site site) const {
  std::vector<std::pair<MemoryLayoutDescriptor, Bytes>> owned;
  owned.reserve(tensors.size());
  for (const auto& [descriptor, data] : tensors) owned.emplace_back(descriptor, Bytes::copy_of(data));
  return create_tensors(std::move(owned), site);
}

template <ComputeServer Server, template <class> class HandleTemplate>
SmallVector<MemoryLayout, 1> ComputeClient<Server, HandleTemplate>::create_tensors_from_slices_pinned(
    const std::vector<std::pair<MemoryLayoutDescriptor, std::span<const std::byte>>>& tensors, Site site) const {
  std::vector<std::size_t> sizes;
  sizes.reserve(tensors.size());
  for (const auto& [descriptor, data] : tensors) sizes.push_back(data.size());
  std::vector<Bytes> buffers = reserve_staging(sizes, site);
  std::vector<std::pair<MemoryLayoutDescriptor, Bytes>> owned;
  owned.reserve(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    std::ranges::copy(tensors[i].second, buffers[i].span().begin());
    owned.emplace_back(tensors[i].first, std::move(buffers[i]));
  }
  return create_tensors(std::move(owned), site);
}

template <ComputeServer Server, template <class> class HandleTemplate>
Bytes ComputeClient<Server, HandleTemplate>::staged(std::span<const std::byte> data, const Site& site) const {
  const std::size_t size = data.size();
  Bytes buffer = std::move(reserve_staging({&size, 1}, site).front());
  std::ranges::copy(data, buffer.span().begin());
  return buffer;
}

template <ComputeServer Server, template <class> class HandleTemplate>
std::vector<Bytes> ComputeClient<Server, HandleTemplate>::reserve_staging(std::span<const std::size_t> sizes,
                                                                          Site site) const {
  if (sizes.empty()) return {};
  try {
    return device_.submit_blocking(
        [sizes, caller = Caller{stream_id(), site}](Server& server) { return server.staging(sizes, caller); }, site);
  } catch (const IoError&) {
    std::vector<Bytes> buffers;
    buffers.reserve(sizes.size());
    for (const std::size_t size : sizes) buffers.push_back(Bytes::zeroed(size));
    return buffers;
  }
}

template <ComputeServer Server, template <class> class HandleTemplate>
void ComputeClient<Server, HandleTemplate>::staging(std::span<Bytes> buffers, bool file_only, Site site) const {
  std::vector<Bytes*> replaced;
  std::vector<std::size_t> sizes;
  for (Bytes& buffer : buffers) {
    const AllocationProperty property = buffer.property();
    const bool pageable = property == AllocationProperty::Native || property == AllocationProperty::Other;
    if (buffer.empty() || !(property == AllocationProperty::File || (pageable && !file_only))) continue;
    replaced.push_back(&buffer);
    sizes.push_back(buffer.size());
  }
  if (replaced.empty()) return;
  std::vector<Bytes> pinned;
  try {
    pinned = device_.submit_blocking(
        [&sizes, caller = Caller{stream_id(), site}](Server& server) { return server.staging(sizes, caller); }, site);
  } catch (const IoError&) {
    return;
  }
  for (std::size_t i = 0; i < replaced.size(); ++i) {
    replaced[i]->copy_to(pinned[i].span());
    *replaced[i] = std::move(pinned[i]);
  }
}

template <ComputeServer Server, template <class> class HandleTemplate>
template <class F>
auto ComputeClient<Server, HandleTemplate>::measure(F&& f, ProfileFailures failures, const Site& site) const {
  using R = std::invoke_result_t<F&>;
  const Caller caller{stream_id(), site};
  return exclusive(
      [&] {
        const ProfilingToken token =
            device_.submit_blocking([&](Server& server) { return server.start_profile(caller); }, site);
        const auto end = [&] {
          return device_.submit_blocking([&](Server& server) { return server.end_profile(token, failures, caller); },
                                         site);
        };
        try {
          if constexpr (std::is_void_v<R>) {
            std::invoke(f);
            return end();
          } else {
            R value = std::invoke(f);
            return std::pair<R, ProfileDuration>(std::forward<R>(value), end());
          }
        } catch (...) {
          close_profile(token, failures, caller);
          throw;
        }
      },
      site);
}

template <ComputeServer Server, template <class> class HandleTemplate>
void ComputeClient<Server, HandleTemplate>::close_profile(ProfilingToken token, ProfileFailures failures,
                                                          const Caller& caller) const noexcept {
  try {
    static_cast<void>(device_.submit_blocking(
        [&](Server& server) { return server.end_profile(token, failures, caller); }, caller.site));
  } catch (...) {  // the caller gets the exception of `f` or of the first end_profile
  }
}

template <ComputeServer Server, template <class> class HandleTemplate>
void ComputeClient<Server, HandleTemplate>::launch_on_server(Server& server, Kernel&& kernel, const CubeCount& count,
                                                             const LaunchArguments& arguments, ExecutionMode mode,
                                                             const Site& site) {
  name_operation("launch");
  const Caller caller{.site = site};  // its stream is that of the submitting thread (L9)
  server.launch(std::move(kernel), count, arguments, mode, caller, SubmitMode::Batched);
}

template <ComputeServer Server, template <class> class HandleTemplate>
std::string ComputeClient<Server, HandleTemplate>::profile_name(const Kernel& kernel, const CubeCount& count) {
  const CubeCount::Static* known = count.as_static();
  return std::string(kernel.name()) + ": " + to_string(kernel.cube_dim()) + " CubeCount " +
         (known != nullptr ? to_string(*known) : "dynamic");
}

template <ComputeServer Server, template <class> class HandleTemplate>
void ComputeClient<Server, HandleTemplate>::launch_profiled(Kernel kernel, CubeCount count, KernelArguments arguments,
                                                            ExecutionMode mode, Site site) const {
  Profiler& profiler = utilities_->profiler;
  std::string name = profiler.level() == ProfileLevel::Full ? profile_name(kernel, count) : kernel.name();
  if (profiler.measures() && launch_measured(name, kernel, count, arguments, mode, site)) return;
  submit_launch(std::move(kernel), count, arguments, mode, site);
  profiler.executing(name);
}

// Returns false, without launching, if the stream is capturing: then there is nothing to measure.
template <ComputeServer Server, template <class> class HandleTemplate>
bool ComputeClient<Server, HandleTemplate>::launch_measured(const std::string& name, Kernel& kernel, CubeCount& count,
                                                            KernelArguments& arguments, ExecutionMode mode,
                                                            const Site& site) const {
  const Caller caller{stream_id(), site};
  if (device_.submit_blocking([&](Server& server) { return server.capturing(caller); }, site)) return false;
  const auto run = [&] {
    device_.submit_blocking(
        [&](Server& server) {
          server.launch(std::move(kernel), count, arguments.view(), mode, caller, SubmitMode::Immediate);
        },
        site);
  };
  utilities_->profiler.record(name, measure(run, ProfileFailures::OfStream, site));
  return true;
}

}  // namespace cox
