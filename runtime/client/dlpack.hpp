#pragma once

// Exchange of tensors with other libraries in one process, without copies, by DLPack 1.x. Coxswain does not contain
// DLPack's header and does not need it; the programs that include this file do.

#if !__has_include(<dlpack/dlpack.h>)
#error "coxswain/runtime/client/dlpack.hpp needs <dlpack/dlpack.h> of DLPack 1.x (PyPI package apache-tvm-ffi has it)"
#endif
#include <dlpack/dlpack.h>
#if !defined(DLPACK_MAJOR_VERSION) || DLPACK_MAJOR_VERSION != 1
#error "coxswain/runtime/client/dlpack.hpp needs DLPack 1.x; the <dlpack/dlpack.h> that was found is another version"
#endif

#include <coxswain/device_handle/base/call_error.hpp>
#include <coxswain/device_handle/base/exceed_capacity.hpp>
#include <coxswain/device_handle/base/find_cause.hpp>
#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/runtime/base/byte_count.hpp>
#include <coxswain/runtime/client/compute_client.hpp>
#include <coxswain/runtime/error/dlpack_error.hpp>
#include <coxswain/runtime/error/io_error.hpp>
#include <coxswain/runtime/error/server_error.hpp>
#include <coxswain/runtime/memory/borrowed_memory.hpp>
#include <coxswain/runtime/tensor/tensor_view.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

namespace cox {
namespace detail {

struct DlpackType {
  ElementType type;
  std::uint8_t code;
  std::uint8_t bits;
};
// The codes of 8-bit floats are numbers, because DLPack 1.0 does not define them. F8E4M3 and F8E5M2 are those of CUDA
// and NCCL: e4m3fn, which has no infinities, and e5m2.
inline constexpr std::array dlpack_types{
    DlpackType{ElementType::Bool, kDLBool, 8},    DlpackType{ElementType::I8, kDLInt, 8},
    DlpackType{ElementType::I16, kDLInt, 16},     DlpackType{ElementType::I32, kDLInt, 32},
    DlpackType{ElementType::I64, kDLInt, 64},     DlpackType{ElementType::U8, kDLUInt, 8},
    DlpackType{ElementType::U16, kDLUInt, 16},    DlpackType{ElementType::U32, kDLUInt, 32},
    DlpackType{ElementType::U64, kDLUInt, 64},    DlpackType{ElementType::F8E4M3, 10, 8},
    DlpackType{ElementType::F8E5M2, 12, 8},       DlpackType{ElementType::F16, kDLFloat, 16},
    DlpackType{ElementType::BF16, kDLBfloat, 16}, DlpackType{ElementType::F32, kDLFloat, 32},
    DlpackType{ElementType::F64, kDLFloat, 64},
};
constexpr bool dlpack_types_are_in_order() {
  if (dlpack_types.size() != element_types.size()) return false;
  for (std::size_t i = 0; i < dlpack_types.size(); ++i)
    if (dlpack_types[i].type != element_types[i].type || dlpack_types[i].bits != 8 * element_types[i].size)
      return false;
  return true;
}
static_assert(dlpack_types_are_in_order());

/// Where DLPack places the memory of a device. All host devices use the memory of the CPU. Throws DlpackError
/// WrongDevice.
[[nodiscard]] inline DLDevice dlpack_device(DeviceId device, std::source_location site) {
  if (device.type == 0) return {kDLCPU, 0};
  if (device.type == 1) return {kDLCUDA, static_cast<std::int32_t>(device.index)};
  throw DlpackError(DlpackError::Kind::WrongDevice, "DLPack has no device type for " + device.to_string(), site);
}

/// A tensor to be imported, checked: `bytes` bytes from `begin` on. `bytes` is 0 if the tensor is empty.
struct DlpackImport {
  std::uintptr_t begin = 0;
  std::size_t bytes = 0;
  TensorView tensor;  // without memory
};

/// Checks the description of a tensor that is to be imported. Throws what from_dlpack says about it.
class DlpackReader {
 public:
  using Kind = DlpackError::Kind;

  DlpackReader(const DLManagedTensorVersioned* managed, DeviceId device, std::source_location site)
      : managed_(managed), device_(device), site_(site) {}

  [[nodiscard]] DlpackImport read() const {
    require_usable();
    DlpackImport import;
    import.tensor.type = type();
    import.tensor.shape = shape();
    Strides strides = this->strides(import.tensor.shape);
    const auto span = span_without_overlap(import.tensor.shape, strides);
    const auto bytes = span ? checked_product(*span, element_size(import.tensor.type)) : span;
    if (!bytes)
      refuse(Kind::UnsupportedStrides, "its elements may overlap, or exceed the address space: shape " +
                                           to_string(import.tensor.shape) + ", strides " + to_string(strides));
    import.tensor.strides = canonical_strides(import.tensor.shape, std::move(strides));
    import.bytes = *bytes;
    if (import.bytes != 0) import.begin = begin(import.bytes, element_size(import.tensor.type));
    return import;
  }

 private:
  void require_usable() const {
    if (managed_ == nullptr) refuse_memory(IoError::Kind::InvalidPointer, "the pointer to it is null");
    if (managed_->version.major != DLPACK_MAJOR_VERSION)  // the other members may lie elsewhere
      refuse(Kind::UnsupportedVersion, "its major version is " + std::to_string(managed_->version.major) + ", not " +
                                           std::to_string(DLPACK_MAJOR_VERSION));
    const DLDevice given = managed_->dl_tensor.device;
    const DLDevice own = dlpack_device(device_, site_);
    if (given.device_type != own.device_type || given.device_id != own.device_id)
      refuse(Kind::WrongDevice, "it is on DLPack device " + name_of(given) + ", not " + name_of(own));
    if ((managed_->flags & DLPACK_FLAG_BITMASK_READ_ONLY) != 0)
      refuse(Kind::ReadOnly, "its producer does not allow writes");
  }
  [[nodiscard]] ElementType type() const {
    const DLDataType type = managed_->dl_tensor.dtype;
    const auto known = std::ranges::find_if(dlpack_types, [type](const DlpackType& candidate) {
      return type.code == candidate.code && type.bits == candidate.bits && type.lanes == 1;
    });
    if (known == dlpack_types.end())
      refuse(Kind::UnsupportedType, "no element type corresponds to code " + std::to_string(type.code) + " with " +
                                        std::to_string(type.bits) + " bits and " + std::to_string(type.lanes) +
                                        " lanes");
    return known->type;
  }
  [[nodiscard]] Shape shape() const {
    const DLTensor& tensor = managed_->dl_tensor;
    if (tensor.ndim < 0 || (tensor.ndim > 0 && tensor.shape == nullptr))
      refuse(Kind::InvalidShape, "its rank is " + std::to_string(tensor.ndim) + ", or its shape is null");
    Shape shape;
    for (const std::int64_t extent : std::span(tensor.shape, static_cast<std::size_t>(tensor.ndim))) {
      if (extent < 0) refuse(Kind::InvalidShape, "an extent is " + std::to_string(extent));
      shape.push_back(static_cast<std::size_t>(extent));
    }
    const auto count = element_count(shape);
    if (!count || !checked_product(*count, element_size(type())))
      refuse(Kind::InvalidShape, "its shape " + to_string(shape) + " exceeds the address space");
    return shape;
  }
  [[nodiscard]] Strides strides(const Shape& shape) const {
    const std::int64_t* const given = managed_->dl_tensor.strides;
    if (given == nullptr) return contiguous_strides(shape);
    const bool is_empty = element_count(shape) == 0;
    Strides strides;
    for (std::size_t i = 0; i < shape.size(); ++i) {
      if (given[i] < 0 && shape[i] != 1 && !is_empty)
        refuse(Kind::UnsupportedStrides, "a stride is " + std::to_string(given[i]));
      strides.push_back(static_cast<std::size_t>(given[i]));
    }
    return strides;
  }
  [[nodiscard]] std::uintptr_t begin(std::size_t bytes, std::size_t size) const {
    const DLTensor& tensor = managed_->dl_tensor;
    if (tensor.data == nullptr) refuse_memory(IoError::Kind::InvalidPointer, "its data pointer is null");
    const auto begin = checked_sum(std::bit_cast<std::uintptr_t>(tensor.data), tensor.byte_offset);
    if (!begin || !checked_sum(*begin, bytes))
      refuse_memory(IoError::Kind::OutOfBounds, "it exceeds the address space");
    if (*begin % size != 0)
      refuse_memory(IoError::Kind::Misaligned,
                    "its first element is not aligned to the " + std::to_string(size) + " bytes of an element");
    return *begin;
  }

  [[noreturn]] void refuse(Kind kind, const std::string& why) const { throw DlpackError(kind, what() + why, site_); }
  [[noreturn]] void refuse_memory(IoError::Kind kind, const std::string& why) const {
    throw IoError(kind, what() + why, site_);
  }
  [[nodiscard]] std::string what() const {
    return "a DLPack tensor cannot be imported for " + device_.to_string() + ": ";
  }
  [[nodiscard]] static std::string name_of(DLDevice device) {
    return std::to_string(static_cast<int>(device.device_type)) + ":" + std::to_string(device.device_id);
  }

  const DLManagedTensorVersioned* managed_;
  DeviceId device_;
  std::source_location site_;
};

inline void delete_dlpack(DLManagedTensorVersioned* managed) {
  if (managed->deleter != nullptr) managed->deleter(managed);
}

/// An exported tensor. `end_use(memory)` is called by the deleter before the handle is dropped, and must not throw.
template <class EndUse>
struct DlpackExport {
  DlpackExport(Handle kept, EndUse end) : memory(std::move(kept)), end_use(std::move(end)) {}

  DLManagedTensorVersioned managed{};
  SmallVector<std::int64_t, 6> shape;
  SmallVector<std::int64_t, 6> strides;
  Handle memory;
  EndUse end_use;

  static void destroy(DLManagedTensorVersioned* managed) noexcept {
    const std::unique_ptr<DlpackExport> self(static_cast<DlpackExport*>(managed->manager_ctx));
    self->end_use(self->memory);
  }
};

/// Whether the tensor has elements. Throws what to_dlpack says about the description of the tensor.
inline bool check_export(const TensorView& tensor, DeviceId device, std::source_location site) {
  const std::string what = "a tensor of shape " + to_string(tensor.shape) + " and strides " +
                           to_string(tensor.strides) + " on " + device.to_string() + " cannot be exported: ";
  static_cast<void>(dlpack_device(device, site));
  if (tensor.shape.size() != tensor.strides.size())
    throw IoError(IoError::Kind::RankMismatch, what + "their ranks differ", site);
  for (const auto& values :
       {std::span(tensor.shape.data(), tensor.shape.size()), std::span(tensor.strides.data(), tensor.strides.size())})
    for (const std::size_t value : values)
      if (!std::in_range<std::int64_t>(value))
        throw DlpackError(DlpackError::Kind::InvalidShape, what + "it exceeds the address space", site);
  const auto span = span_without_overlap(tensor.shape, tensor.strides);
  const auto bytes = span ? checked_product(*span, element_size(tensor.type)) : span;
  if (!bytes) throw DlpackError(DlpackError::Kind::UnsupportedStrides, what + "its elements may overlap", site);
  if (*bytes == 0) return false;
  if (!tensor.memory.memory().memory()) throw IoError(IoError::Kind::NotFound, what + "its handle is empty", site);
  if (*bytes > tensor.memory.size_in_used())
    throw IoError(IoError::Kind::OutOfBounds,
                  what + "it needs " + format_byte_count(*bytes) + ", and its memory has " +
                      format_byte_count(tensor.memory.size_in_used()),
                  site);
  return true;
}

/// `data`: the address of the first element; null if the tensor is empty. Throws std::bad_alloc.
template <class EndUse>
[[nodiscard]] DLManagedTensorVersioned* export_dlpack(const TensorView& tensor, DeviceId device, void* data,
                                                      Access access, EndUse end_use, std::source_location site) {
  auto result = std::make_unique<DlpackExport<EndUse>>(tensor.memory, std::move(end_use));
  for (const std::size_t extent : tensor.shape) result->shape.push_back(static_cast<std::int64_t>(extent));
  for (const std::size_t stride : tensor.strides) result->strides.push_back(static_cast<std::int64_t>(stride));
  const DlpackType& type = dlpack_types[static_cast<std::size_t>(tensor.type)];
  // The offset is in the address: some consumers ignore byte_offset.
  result->managed = {.version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION},
                     .manager_ctx = result.get(),
                     .deleter = &DlpackExport<EndUse>::destroy,
                     .flags = writes(access) ? 0 : DLPACK_FLAG_BITMASK_READ_ONLY,
                     .dl_tensor = {.data = data,
                                   .device = dlpack_device(device, site),
                                   .ndim = static_cast<std::int32_t>(tensor.shape.size()),
                                   .dtype = {type.code, type.bits, 1},
                                   .shape = result->shape.data(),
                                   .strides = result->strides.data(),
                                   .byte_offset = 0}};
  return &result.release()->managed;
}

/// The accesses of a consumer: any, or reads alone.
[[nodiscard]] constexpr Access allowed(Access access) noexcept { return writes(access) ? Access::Write : Access::Read; }

/// The address of get_resource(): a CUdeviceptr, or the first of a span of bytes.
template <class Resource>
[[nodiscard]] void* address_of(const Resource& resource) noexcept {
  if constexpr (requires { resource.address; }) {
    return std::bit_cast<void*>(resource.address);
  } else {
    return resource.data();
  }
}

}  // namespace detail

/// The tensor of another library as a tensor on the client's device, in place: on host devices one in memory of the CPU
/// (kDLCPU), on GPUs one in memory of that GPU (kDLCUDA). See ComputeClient::borrow for what holds for its memory, and
/// for `ready`: on a GPU the stream that was passed to the producer (`__dlpack__(stream=...)`), if there was one.
///
/// The tensor's deleter is called once, on the device thread, when the last handle has been dropped and the last use is
/// complete, at the latest when the device is shut down. If this call throws, the caller still owns the tensor and must
/// call the deleter. If the deleter takes a lock, such as Python's GIL, no thread may hold that lock while it waits for
/// the device: release the GIL around calls that block.
///
/// Row-major, transposed and padded tensors are accepted; null strides mean row-major without padding. Strides of
/// dimensions of extent 1 are replaced by usable ones. The first element only needs the alignment of its type: the
/// memory is borrowed from the 16-byte boundary before it, and the handle is a view that begins at the element (where
/// that is not the boundary, the view is not the whole allocation, and a write to it does not end poisoning). Import
/// memory once, and make views of the handle: each import is an allocation of its own, and accesses through two imports
/// of one memory are not ordered.
///
/// Does not block. Throws DlpackError: UnsupportedVersion, WrongDevice, UnsupportedType, ReadOnly (handles do not
/// restrict accesses to reads, so read-only tensors are refused), InvalidShape, UnsupportedStrides. Throws IoError
/// InvalidPointer (a null pointer), Misaligned (for its type), OutOfBounds; and what borrow throws.
template <ForeignServer Server, template <class> class HandleTemplate>
[[nodiscard]] TensorView from_dlpack(const ComputeClient<Server, HandleTemplate>& client,
                                     DLManagedTensorVersioned* tensor,
                                     std::type_identity_t<typename Server::Ready> ready = {},
                                     std::source_location site = std::source_location::current()) {
  detail::DlpackImport import = detail::DlpackReader(tensor, client.device_id(), site).read();
  if (import.bytes == 0) {
    import.tensor.memory = client.empty(0, site);
    const auto owner = std::make_shared<BorrowedMemory>(Location{client.device_id(), client.stream_id()},
                                                        [tensor] { detail::delete_dlpack(tensor); });
    try {
      client.device_handle().submit([owner](Server&) { owner->release(); });
    } catch (...) {
      owner->cancel();
      throw;
    }
    return std::move(import.tensor);
  }
  const std::uintptr_t offset = import.begin % BorrowedMemory::alignment;
  import.tensor.memory = client
                             .borrow(
                                 std::bit_cast<void*>(import.begin - offset), import.bytes + offset, std::move(ready),
                                 [tensor] { detail::delete_dlpack(tensor); }, site)
                             .offset_start(offset);
  return std::move(import.tensor);
}

/// The tensor for a consumer that will access it by work on `stream` of the same GPU, as `__dlpack__(stream=...)` is
/// defined: when the call returns, the stream waits for the work queued here on the memory so far, by every stream of
/// the library (`access` Read: for what writes it), and the consumer may queue its own work. `access`: what the
/// consumer may do; Read marks the tensor as read-only.
///
/// The consumer owns the result, which is never null, and calls its deleter once, from any thread, but not from a
/// callback of a CUDA stream. The handle is kept until then. The consumer's work may still run when it calls the
/// deleter: later work of the library on the memory, and its next allocation, wait for what has been queued on `stream`
/// by then. So the stream must exist, and must not be in capture, when the deleter is called; a failure of that wait is
/// reported as a TaskError. A shutdown of the device frees the memory although the tensor exists (L13). While both
/// sides use the memory, order them by ready_after and ready_on.
///
/// Blocks, because consumers queue work when `__dlpack__` returns; not for the work itself, but until that work has
/// been given to the device. For the result of a collective that may depend on other ranks: submit for all ranks
/// first. If a collective that still runs fails later, the consumer may have read undefined contents: check
/// Handle::failure() after a wait on the library's side (L14). Throws IoError RankMismatch, OutOfBounds, NotFound,
/// Poisoned, WrongDevice, StaleHandle; DlpackError UnsupportedStrides, InvalidShape; and what ready_on says.
template <ForeignStreamServer Server, template <class> class HandleTemplate>
[[nodiscard]] DLManagedTensorVersioned* to_dlpack(const ComputeClient<Server, HandleTemplate>& client,
                                                  const TensorView& tensor,
                                                  std::type_identity_t<typename Server::NativeStream> stream,
                                                  Access access = Access::Write,
                                                  std::source_location site = std::source_location::current()) {
  void* data = nullptr;
  auto own = client;  // on a stream of its own, so that neither capture nor failures of the caller's are affected
  own.set_stream(StreamId::allocate());
  const bool has_elements = detail::check_export(tensor, client.device_id(), site);
  if (has_elements) {
    client.ready_on(tensor.memory, stream, detail::allowed(access), site).get();
    data = detail::address_of(own.get_resource(tensor.memory, site).resource);
  }
  const auto end_use = [own, stream, has_elements](const Handle& memory) noexcept {
    if (!has_elements) return;
    const detail::ExceedCapacity exceed;  // at a full queue it neither waits nor is refused
    try {
      own.ready_after(memory, stream);
    } catch (const CallError& error) {  // if the device was shut down, the memory is freed
      if (error.kind() != CallError::Kind::Closed && error.kind() != CallError::Kind::Forked)
        report_task_error({own.device_id(), own.stream_id(), std::current_exception()});
    } catch (...) {
      report_task_error({own.device_id(), own.stream_id(), std::current_exception()});
    }
  };
  return detail::export_dlpack(tensor, client.device_id(), data, access, end_use, site);
}

/// The tensor for a consumer that will access it on the CPU. `access`: what the consumer may do; Read marks the tensor
/// as read-only.
///
/// The consumer owns the result, which is never null, and calls its deleter once, from any thread, when it no longer
/// accesses the memory. The handle is kept until then. A shutdown of the device frees the memory although the tensor
/// exists (L13). While both sides use the memory, each waits for the other: the consumer's accesses are not ordered by
/// the library.
///
/// Blocks until the work queued on the memory so far, by every stream, is complete (`access` Read: what writes it).
/// Throws IoError RankMismatch, OutOfBounds, NotFound, Poisoned, WrongDevice, StaleHandle; DlpackError
/// UnsupportedStrides, InvalidShape; ServerError Graph in a capture; CallError.
template <ForeignServer Server, template <class> class HandleTemplate>
  requires(!ForeignStreamServer<Server>)
[[nodiscard]] DLManagedTensorVersioned* to_dlpack(const ComputeClient<Server, HandleTemplate>& client,
                                                  const TensorView& tensor, Access access = Access::Write,
                                                  std::source_location site = std::source_location::current()) {
  void* data = nullptr;
  if (detail::check_export(tensor, client.device_id(), site)) {
    client.issued(site).get();  // throws in a capture
    auto own = client;
    own.set_stream(StreamId::allocate());
    data = detail::address_of(own.get_resource(tensor.memory, site).resource);
    // An operation that does nothing, in the order of the accesses. Its failures belong to this call.
    own.call(
        KernelArguments{}.with_buffer(tensor.memory, detail::allowed(access)), [](std::span<void* const>) {}, site);
    try {
      own.sync(site).get();
    } catch (const ServerError& error) {
      if (const auto* const poisoned = find_cause<IoError>(error, IoError::Kind::Poisoned)) throw IoError(*poisoned);
      throw;
    }
  }
  return detail::export_dlpack(tensor, client.device_id(), data, access, [](const Handle&) noexcept {}, site);
}

}  // namespace cox
