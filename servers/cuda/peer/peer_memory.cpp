#include <coxswain/servers/cuda/peer/peer_memory.hpp>

#include <coxswain/servers/cuda/driver/cuda_try.hpp>
#include <coxswain/servers/cuda/memory/cuda_storage.hpp>

#include <fcntl.h>

#include <new>
#include <utility>

namespace cox::detail {

bool all_reach_each_other(const std::vector<std::shared_ptr<CudaContext>>& contexts) {
  for (const auto& from : contexts)
    for (const auto& to : contexts) {
      int reaches = 1;
      if (from != to) COX_CUDA_TRY(device_can_access_peer(&reaches, from->device(), to->device()));
      if (reaches == 0) return false;
    }
  return true;
}

std::shared_ptr<PeerMemory> PeerMemory::create(const std::shared_ptr<CudaContext>& context, std::size_t bytes,
                                               Sharing sharing) {
  const CurrentContext current(*context);
  const std::shared_ptr<PeerMemory> memory(new PeerMemory(context, bytes));
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = context->ordinal()};
  if (sharing == Sharing::OtherProcesses) properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  const CUresult result = driver().physical_create(&memory->piece_, bytes, &properties, 0);
  if (result != CUDA_SUCCESS && result != CUDA_ERROR_OUT_OF_MEMORY && sharing == Sharing::OtherProcesses)
    throw_cuda_error(result, "physical_create", std::source_location::current());
  if (result != CUDA_SUCCESS) throw std::bad_alloc();
  memory->has_piece_ = true;
  if (memory->map(access_for(*context)) != CUDA_SUCCESS) throw std::bad_alloc();
  // The kernels read zeros first. The memory never contains data of another process, but may contain old data of this
  // one.
  COX_CUDA_TRY(memory_set(memory->base_, 0, bytes / sizeof(std::uint32_t)));
  COX_CUDA_TRY(stream_synchronize(nullptr));
  return memory;
}

std::shared_ptr<PeerMemory> PeerMemory::import(const std::vector<std::shared_ptr<CudaContext>>& devices,
                                               const FileDescriptor& shared, std::size_t bytes) {
  const CurrentContext current(*devices.front());
  const std::shared_ptr<PeerMemory> memory(new PeerMemory(devices.front(), bytes));
  // NOLINTNEXTLINE(performance-no-int-to-ptr): as the driver expects a descriptor
  COX_CUDA_TRY(physical_import(&memory->piece_, reinterpret_cast<void*>(static_cast<std::uintptr_t>(shared.get())),
                               CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  memory->has_piece_ = true;
  std::vector<CUmemAccessDesc> access;
  for (const std::shared_ptr<CudaContext>& device : devices)
    access.push_back(
        {{.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device->ordinal()}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
  const CUresult result = memory->map(access);
  if (result != CUDA_SUCCESS) throw_cuda_error(result, "physical_map", std::source_location::current());
  return memory;
}

CUresult PeerMemory::map(std::span<const CUmemAccessDesc> access) noexcept {
  CUdeviceptr base = 0;
  CUresult result = driver().address_reserve(&base, size_, CudaStorage::granule, 0, 0);
  if (result != CUDA_SUCCESS) return result;
  base_ = base;
  result = driver().physical_map(base_, size_, 0, piece_, 0);
  if (result != CUDA_SUCCESS) return result;
  is_mapped_ = true;
  return driver().physical_set_access(base_, size_, access.data(), access.size());
}

PeerMemory::~PeerMemory() {
  const CurrentContext current(*context_);
  if (is_mapped_) COX_CUDA_CHECK(physical_unmap(base_, size_));
  if (base_ != 0) COX_CUDA_CHECK(address_free(base_, size_));
  if (has_piece_) COX_CUDA_CHECK(physical_release(piece_));
}

FileDescriptor PeerMemory::share() const {
  const CurrentContext current(*context_);
  int native = -1;
  COX_CUDA_TRY(physical_export(&native, piece_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  FileDescriptor descriptor(native);
  static_cast<void>(fcntl(descriptor.get(), F_SETFD, FD_CLOEXEC));
  return descriptor;
}

}  // namespace cox::detail
