#include <coxswain/servers/cuda/server/cuda_foreign.hpp>

#include <coxswain/runtime/base/byte_count.hpp>
#include <coxswain/runtime/error/io_error.hpp>
#include <coxswain/runtime/error/server_error.hpp>
#include <coxswain/runtime/memory/borrowed_memory.hpp>
#include <coxswain/servers/cuda/device/cuda_context.hpp>
#include <coxswain/servers/cuda/device/cuda_devices.hpp>
#include <coxswain/servers/cuda/driver/driver_object.hpp>

#include <array>
#include <bit>
#include <cstdint>
#include <string>
#include <utility>

namespace cox::detail {

class CudaFence {
 public:
  explicit CudaFence(DriverEvent recorded) noexcept : own_(std::move(recorded)), event_(own_.get()) {}
  explicit CudaFence(CUevent event) noexcept : event_(event) {}
  [[nodiscard]] CUevent event() const noexcept { return event_; }

 private:
  DriverEvent own_;
  CUevent event_;
};

namespace {

std::string name_of(const CudaContext& context) {
  return DeviceId{.type = cuda_device_type, .index = static_cast<std::uint16_t>(context.ordinal())}.to_string();
}

struct PointerFacts {
  CUmemorytype type{};
  int ordinal = -1;
  CUdeviceptr begin = 0;
  std::size_t size = 0;
  bool is_whole_allocation = false;  // the range is an allocation, and not one of several that are mapped side by side
};

PointerFacts facts_of(CUdeviceptr address) {
  PointerFacts facts;
  unsigned type = 0;
  unsigned legacy = 0;
  std::array attributes{CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                        CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE};
  std::array<void*, attributes.size()> values{&type, &facts.ordinal, &facts.begin, &facts.size, &legacy};
  COX_CUDA_TRY(pointer_attributes(static_cast<unsigned>(attributes.size()), attributes.data(), values.data(), address));
  facts.type = static_cast<CUmemorytype>(type);
  facts.is_whole_allocation = legacy != 0;
  return facts;
}

}  // namespace

CudaFencePtr make_fence(const CudaContext& context, const CudaReady& ready, std::source_location site) {
  if (ready.is_event()) {
    if (ready.event() == nullptr) throw ServerError(ServerError::Kind::Validation, "the event is null", site);
    const CUresult result = driver().event_query(ready.event());
    if (result == CUDA_ERROR_CAPTURED_EVENT)
      throw ServerError(ServerError::Kind::Graph,
                        "the event was recorded in a capture: work of " + name_of(context) + " would become part of it",
                        site);
    return std::make_shared<const CudaFence>(ready.event());
  }
  if (!ready.is_stream()) return nullptr;
  const CUstream stream = require_stream(context, ready.stream(), site);
  const CurrentContext current(context);
  DriverEvent event;
  COX_CUDA_TRY(event_create(event.out(), CU_EVENT_DISABLE_TIMING));
  COX_CUDA_TRY(event_record(event.get(), stream));
  return std::make_shared<const CudaFence>(std::move(event));
}

NativeCudaStream require_stream(const CudaContext& context, NativeCudaStream stream, std::source_location site) {
  if (stream == CU_STREAM_PER_THREAD)
    throw ServerError(ServerError::Kind::Validation,
                      "the default stream of a thread cannot be used by another thread: create a stream", site);
  const CUstream known = stream == nullptr ? CU_STREAM_LEGACY : stream;
  const CurrentContext current(context);
  CUcontext of = nullptr;
  COX_CUDA_TRY(stream_context(known, &of));
  if (of != context.native())
    throw ServerError(ServerError::Kind::Validation,
                      "the stream does not belong to the primary context of " + name_of(context), site);
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  COX_CUDA_TRY(stream_is_capturing(known, &status));
  if (status != CU_STREAM_CAPTURE_STATUS_NONE)
    throw ServerError(ServerError::Kind::Graph,
                      "the stream is in capture: a wait for work of " + name_of(context) + " would become part of it",
                      site);
  return known;
}

void enqueue_wait(const CudaFence& fence, NativeCudaStream stream) {
  COX_CUDA_TRY(stream_wait_event(stream, fence.event(), 0));
}

void require_device_memory(const CudaContext& context, const void* pointer, std::size_t bytes,
                           std::source_location site) {
  const auto address = std::bit_cast<CUdeviceptr>(pointer);
  const auto refuse = [&](IoError::Kind kind, const std::string& why) {
    throw IoError(kind, "memory cannot be borrowed for " + name_of(context) + ": " + why, site);
  };
  if (address == 0) refuse(IoError::Kind::InvalidPointer, "the pointer is null");
  if (address % BorrowedMemory::alignment != 0)
    refuse(IoError::Kind::Misaligned,
           "the pointer is not a multiple of 16 bytes; borrow the allocation, and use a view");
  const CurrentContext current(context);
  const PointerFacts facts = facts_of(address);
  if (facts.type != CU_MEMORYTYPE_DEVICE)
    refuse(IoError::Kind::InvalidPointer, facts.type == CU_MEMORYTYPE_HOST
                                              ? "the pointer is host memory"
                                              : "the pointer is not memory of a GPU, or no longer");
  if (facts.ordinal != context.ordinal())
    refuse(IoError::Kind::WrongDevice, "it is memory of cuda:" + std::to_string(facts.ordinal));
  PointerFacts last = facts;
  std::size_t there = last.begin + last.size - address;
  while (there < bytes && !last.is_whole_allocation) {  // the memory may consist of several pieces
    last = facts_of(address + there);
    if (last.type != CU_MEMORYTYPE_DEVICE || last.ordinal != context.ordinal()) break;
    there = last.begin + last.size - address;
  }
  if (there < bytes)
    refuse(IoError::Kind::OutOfBounds, "of " + format_byte_count(bytes) + " the allocation has only " +
                                           format_byte_count(there) + " behind the pointer");
}

}  // namespace cox::detail
