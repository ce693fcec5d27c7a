#pragma once

#include <coxswain/device_handle/device_handle.hpp>
#include <coxswain/device_handle/wait_graph.hpp>
#include <coxswain/runtime/apply_settings.hpp>
#include <coxswain/runtime/compute_server.hpp>
#include <coxswain/runtime/copy_plan.hpp>
#include <coxswain/runtime/future.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <source_location>
#include <span>
#include <utility>
#include <vector>

namespace cox {

/// The way to one device. Cheap to copy; every copy may be used from any thread. Work belongs to the stream of the
/// calling thread (StreamId::current()), unless set_stream pins the client to one: work of one stream runs in order,
/// work of different streams may overlap, and where it shares a buffer the later one waits for exactly what it must.
///
/// create*, empty*, write and launch hand the device thread one closure and return: they wait neither for it nor for
/// the device. What is wrong with the arguments as such (sizes that do not fit together) is thrown by the call itself;
/// any later failure is kept with the stream and thrown, as ServerError Unhealthy with the first cause first, by the
/// next read, sync or flush on that stream (L12). Every call throws CallError Closed once the device is being shut down
/// (L4).
///
/// HandleTemplate is DeviceHandle (own device thread) or InlineDeviceHandle (the caller's thread, for debugging).
template <ComputeServer Server, template <class> class HandleTemplate = DeviceHandle>
class ComputeClient {
 public:
  using Kernel = typename Server::Kernel;
  using Site = std::source_location;

  /// Applies the settings, then finds the device's server or builds it on the device's thread. Blocks for that the
  /// first time; throws what its constructor threw, and ConfigError.
  [[nodiscard]] static ComputeClient load(DeviceId device) {
    apply_settings();
    return ComputeClient(HandleTemplate<Server>::get(device));
  }
  /// Applies the settings, then registers a ready server. Blocks for that; throws CallError AlreadyRegistered if the
  /// device has one, and ConfigError.
  [[nodiscard]] static ComputeClient init(DeviceId device, Server server) {
    apply_settings();
    return ComputeClient(HandleTemplate<Server>::insert(device, std::move(server)));
  }

  // Facts, without a round trip to the device
  // ---------------------------------------------------------------------------

  [[nodiscard]] DeviceId device_id() const noexcept { return utilities_->owner.device; }
  [[nodiscard]] const DeviceProperties& properties() const noexcept { return utilities_->properties; }
  [[nodiscard]] const Features& features() const noexcept { return utilities_->properties.features; }
  [[nodiscard]] const typename Server::Info& info() const noexcept { return utilities_->info; }
  [[nodiscard]] std::vector<DeviceId> enumerate_devices(std::uint16_t type) const {
    return Server::enumerate_devices(type);
  }
  [[nodiscard]] std::size_t device_count(std::uint16_t type) const { return Server::enumerate_devices(type).size(); }
  /// The handle to the device thread itself, for its statistics and for other services.
  [[nodiscard]] const HandleTemplate<Server>& device_handle() const noexcept { return device_; }

  /// The stream that this client's calls on this thread belong to.
  [[nodiscard]] StreamId stream_id() const noexcept { return stream_ ? *stream_ : StreamId::current(); }
  /// Pins this client, not its copies, to a stream. Not while another thread uses this very object.
  void set_stream(StreamId stream) noexcept { stream_ = stream; }

  // Allocation and upload
  // ----------------------------------------------------------------------------------------------

  /// New memory with a copy of `data`. Prefer create, which does not copy.
  [[nodiscard]] Handle create_from_slice(std::span<const std::byte> data, Site site = Site::current()) const {
    return create(Bytes::copy_of(data), site);
  }
  template <class T>
    requires(std::is_trivially_copyable_v<T> && !std::is_same_v<std::remove_cv_t<T>, std::byte>)
  [[nodiscard]] Handle create_from_slice(std::span<T> data, Site site = Site::current()) const {
    return create_from_slice(std::as_bytes(data), site);
  }
  /// New memory with the content of `data`, which is given back once the device has it.
  [[nodiscard]] Handle create(Bytes data, Site site = Site::current()) const {
    auto descriptor = MemoryLayoutDescriptor::contiguous({data.size()}, 1);
    return std::move(create_one(std::move(descriptor), std::move(data), site).memory);
  }
  /// A new tensor, laid out as the device likes it (see PitchedLayoutPolicy), from dense row-major `data`. Throws
  /// IoError SizeMismatch unless `data` has as many bytes as the shape needs.
  [[nodiscard]] MemoryLayout create_tensor(Bytes data, Shape shape, std::size_t elem_size,
                                           Site site = Site::current()) const {
    return create_one(MemoryLayoutDescriptor::optimized(std::move(shape), elem_size), std::move(data), site);
  }
  [[nodiscard]] MemoryLayout create_tensor_from_slice(std::span<const std::byte> data, Shape shape,
                                                      std::size_t elem_size, Site site = Site::current()) const {
    return create_tensor(Bytes::copy_of(data), std::move(shape), elem_size, site);
  }
  /// New tensors in one allocation, in order.
  [[nodiscard]] SmallVector<MemoryLayout, 1> create_tensors(
      std::vector<std::pair<MemoryLayoutDescriptor, Bytes>> tensors, Site site = Site::current()) const;
  [[nodiscard]] SmallVector<MemoryLayout, 1> create_tensors_from_slices(
      const std::vector<std::pair<MemoryLayoutDescriptor, std::span<const std::byte>>>& tensors,
      Site site = Site::current()) const;
  /// New memory whose content is not defined.
  [[nodiscard]] Handle empty(std::size_t size, Site site = Site::current()) const {
    return std::move(empty_one(MemoryLayoutDescriptor::contiguous({size}, 1), site).memory);
  }
  [[nodiscard]] MemoryLayout empty_tensor(Shape shape, std::size_t elem_size, Site site = Site::current()) const {
    return empty_one(MemoryLayoutDescriptor::optimized(std::move(shape), elem_size), site);
  }
  /// New tensors in one allocation, in order.
  [[nodiscard]] SmallVector<MemoryLayout, 1> empty_tensors(const std::vector<MemoryLayoutDescriptor>& tensors,
                                                           Site site = Site::current()) const {
    AllocationLayout layout = lay_out(utilities_->layout_policy, utilities_->owner, stream_id(), tensors);
    submit_allocation(std::move(layout.base), {}, site);
    return std::move(layout.parts);
  }
  /// Overwrites the memory of the handle in place. The sizes must be equal.
  void write(const Handle& handle, Bytes data, Site site = Site::current()) const {
    write_tensor(handle.copy_descriptor({handle.size_in_used()}, {1}, 1), std::move(data), site);
  }
  /// Overwrites a tensor in place from dense row-major `data`.
  void write_tensor(CopyDescriptor destination, Bytes data, Site site = Site::current()) const {
    Uploads uploads;
    uploads.push_back({std::move(destination), std::move(data)});
    submit(site, [uploads = std::move(uploads)](Server& server, const Caller& caller) mutable {
      server.write(std::move(uploads), caller);
    });
  }

  // Download
  // -----------------------------------------------------------------------------------------------------------

  /// The bytes of each handle's window, padding included, as they are when the stream comes to it. Does not block.
  [[nodiscard]] Future<std::vector<Bytes>> read_async(std::span<const Handle> handles,
                                                      Site site = Site::current()) const {
    return submit_read(whole(handles), site);
  }
  [[nodiscard]] Future<std::vector<Bytes>> read_async(const std::vector<Handle>& handles,
                                                      Site site = Site::current()) const {
    return submit_read(whole(handles), site);
  }
  /// Completes any Asio token with (std::exception_ptr, std::vector<Bytes>).
  template <class CompletionToken>
    requires(!std::same_as<std::remove_cvref_t<CompletionToken>, Site>)
  auto read_async(std::span<const Handle> handles, CompletionToken&& token, Site site = Site::current()) const {
    return submit_read(whole(handles), site).async_get(std::forward<CompletionToken>(token));
  }
  /// As read_async; blocks for the result. In a task of this server itself: CallError WouldDeadlock (L10).
  [[nodiscard]] std::vector<Bytes> read(std::span<const Handle> handles, Site site = Site::current()) const {
    return blocking_read(whole(handles), site);
  }
  [[nodiscard]] std::vector<Bytes> read(const std::vector<Handle>& handles, Site site = Site::current()) const {
    return blocking_read(whole(handles), site);
  }
  [[nodiscard]] Bytes read_one(const Handle& handle, Site site = Site::current()) const {
    return std::move(blocking_read(whole({&handle, 1}), site).front());
  }
  /// Dense row-major bytes of each tensor; strides must be row-major with padding of the last dimension only, as every
  /// layout of this client is. Does not block.
  [[nodiscard]] Future<std::vector<Bytes>> read_tensor_async(std::vector<CopyDescriptor> tensors,
                                                             Site site = Site::current()) const {
    return submit_read(moved(std::move(tensors)), site);
  }
  template <class CompletionToken>
    requires(!std::same_as<std::remove_cvref_t<CompletionToken>, Site>)
  auto read_tensor_async(std::vector<CopyDescriptor> tensors, CompletionToken&& token,
                         Site site = Site::current()) const {
    return submit_read(moved(std::move(tensors)), site).async_get(std::forward<CompletionToken>(token));
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

  // Work
  // ---------------------------------------------------------------------------------------------------------------

  /// Queues the kernel on the stream. A static count with a zero extent is no work at all.
  void launch(Kernel kernel, CubeCount count, KernelArguments arguments, ExecutionMode mode = ExecutionMode::Checked,
              Site site = Site::current()) const {
    if (count.is_empty()) return;
    submit(site, [kernel = std::move(kernel), count = std::move(count), arguments = std::move(arguments), mode](
                     Server& server, const Caller& caller) mutable {
      server.launch(std::move(kernel), count, std::move(arguments), mode, caller);
    });
  }

  // Meeting the device
  // ---------------------------------------------------------------------------------------------------

  /// Throws the stream's failures known so far. Blocks for the device thread, not for work that still runs.
  void flush(Site site = Site::current()) const {
    device_.submit_blocking([caller = Caller{stream_id(), site}](Server& server) { server.flush(caller); });
  }
  /// Completes when all work of the stream so far is done. Does not block.
  [[nodiscard]] Future<void> sync(Site site = Site::current()) const {
    Promise<void> promise(utilities_->completion_thread);
    promise.queued_at(device_.wait_node());
    Future<void> future = promise.future();
    submit(site, [promise = std::move(promise)](Server& server, const Caller& caller) mutable {
      promise.begin();
      server.sync(caller, std::move(promise));
    });
    return future;
  }
  /// Completes any Asio token with (std::exception_ptr).
  template <class CompletionToken>
    requires(!std::same_as<std::remove_cvref_t<CompletionToken>, Site>)
  auto sync(CompletionToken&& token, Site site = Site::current()) const {
    return sync(site).async_get(std::forward<CompletionToken>(token));
  }
  /// The memory of the whole device. Blocks for the device thread. Throws ServerError Unhealthy while the stream has
  /// failures that no read, sync or flush has taken yet.
  [[nodiscard]] MemoryUsage memory_usage(Site site = Site::current()) const {
    return device_.submit_blocking(
        [caller = Caller{stream_id(), site}](Server& server) { return server.memory_usage(caller); });
  }
  /// Where the memory of the whole device is, by the lines that asked for it. Blocks for the device thread, which
  /// visits every allocation.
  [[nodiscard]] MemoryReport memory_report(Site site = Site::current()) const {
    return device_.submit_blocking(
        [caller = Caller{stream_id(), site}](Server& server) { return server.memory_report(caller); });
  }
  /// Gives back to the system what no work needs any more. Does not block.
  void memory_cleanup(Site site = Site::current()) const {
    submit(site, [](Server& server, const Caller& caller) { server.memory_cleanup(caller); });
  }
  /// Calls `f()` on the device thread and returns what it returns, or rethrows what it threw. Calls of this client
  /// inside it run inline, nobody else's in between. Blocks.
  template <class F>
  decltype(auto) exclusive(F&& f) const {
    return device_.exclusive(std::forward<F>(f));
  }

 private:
  explicit ComputeClient(HandleTemplate<Server> device) : device_(std::move(device)), utilities_(device_.utilities()) {}

  /// Runs `f(server, caller)` on the device thread; fire and forget. What it throws joins the errors of the stream.
  template <class F>
  void submit(const Site& site, F f) const {
    const Caller caller{stream_id(), site};
    const auto post = [&] {
      device_.submit([f = std::move(f), caller](Server& server) mutable { f(server, caller); });
    };
    if (!stream_) return post();
    const StreamScope scope(*stream_);
    post();
  }

  void submit_allocation(Handle base, Uploads uploads, const Site& site) const {
    const std::size_t size = base.size();
    submit(site, [memory = std::move(base).binding().memory, size, uploads = std::move(uploads)](
                     Server& server, const Caller& caller) mutable {
      const bool usable = server.initialize_memory(std::move(memory), size, caller);
      if (usable && !uploads.empty()) server.write(std::move(uploads), caller);
    });
  }

  MemoryLayout empty_one(MemoryLayoutDescriptor tensor, const Site& site) const {
    AllocationLayout layout = lay_out(utilities_->layout_policy, utilities_->owner, stream_id(), {&tensor, 1});
    submit_allocation(std::move(layout.base), {}, site);
    return std::move(layout.parts.front());
  }

  MemoryLayout create_one(MemoryLayoutDescriptor tensor, Bytes data, const Site& site) const {
    AllocationLayout layout = lay_out(utilities_->layout_policy, utilities_->owner, stream_id(), {&tensor, 1});
    Uploads uploads;
    uploads.push_back(upload_of(std::move(tensor), layout.parts.front(), std::move(data)));
    submit_allocation(std::move(layout.base), std::move(uploads), site);
    return std::move(layout.parts.front());
  }

  static Upload upload_of(MemoryLayoutDescriptor tensor, const MemoryLayout& layout, Bytes data) {
    CopyDescriptor destination = layout.copy_descriptor(std::move(tensor.shape), tensor.elem_size);
    require_host_size(plan_copy(destination), destination, data.size());
    return {std::move(destination), std::move(data)};
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

  Future<std::vector<Bytes>> submit_read(Downloads downloads, const Site& site) const {
    Promise<std::vector<Bytes>> promise(utilities_->completion_thread);
    promise.queued_at(device_.wait_node());
    Future<std::vector<Bytes>> future = promise.future();
    submit(site, [downloads = std::move(downloads), promise = std::move(promise)](Server& server,
                                                                                  const Caller& caller) mutable {
      promise.begin();
      server.read(std::move(downloads), caller, std::move(promise));
    });
    return future;
  }
  std::vector<Bytes> blocking_read(Downloads downloads, const Site& site) const {
    if (!HeldNode::any()) return submit_read(std::move(downloads), site).get();
    // On a device thread the closure must not queue behind its own caller: this runs it now or throws (L10).
    Promise<std::vector<Bytes>> promise(utilities_->completion_thread);
    Future<std::vector<Bytes>> future = promise.future();
    device_.submit_blocking([&, caller = Caller{stream_id(), site}](Server& server) {
      server.read(std::move(downloads), caller, std::move(promise));
    });
    return future.get();
  }

  HandleTemplate<Server> device_;
  std::shared_ptr<const ServerUtilities<Server>> utilities_;
  std::optional<StreamId> stream_;
};

template <ComputeServer Server, template <class> class HandleTemplate>
SmallVector<MemoryLayout, 1> ComputeClient<Server, HandleTemplate>::create_tensors(
    std::vector<std::pair<MemoryLayoutDescriptor, Bytes>> tensors, Site site) const {
  std::vector<MemoryLayoutDescriptor> descriptors;
  descriptors.reserve(tensors.size());
  for (const auto& tensor : tensors) descriptors.push_back(tensor.first);
  AllocationLayout layout = lay_out(utilities_->layout_policy, utilities_->owner, stream_id(), descriptors);
  Uploads uploads;
  uploads.reserve(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i)
    uploads.push_back(upload_of(std::move(descriptors[i]), layout.parts[i], std::move(tensors[i].second)));
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

}  // namespace cox
