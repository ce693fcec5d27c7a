// Memory and copies of the library that stands in for the CUDA driver.
#include <coxswain/tests/fake_cuda/fake_driver.hpp>

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string_view>
#include <utility>

using namespace cox::test;

namespace {

constexpr std::size_t fake_granule = std::size_t{2} << 20U;
constexpr std::size_t fake_device_mark = 4096;

// The fd of a piece of memory, as a handle that is not 0.
CUmemGenericAllocationHandle handle_of(int fd) { return static_cast<CUmemGenericAllocationHandle>(fd) + 1; }
int fd_of(CUmemGenericAllocationHandle handle) { return static_cast<int>(handle - 1); }

std::size_t& taken_of(int device) { return fake_world().memory.at(static_cast<std::size_t>(device)); }
bool has_room(int device, std::size_t bytes) { return taken_of(device) + bytes <= fake_device_memory; }

// Which call of the driver the caller is may fail.
CUresult allocate(void** memory, std::size_t bytes, const char* function) {
  if (const CUresult refused = refuse_in_capture(function); refused != CUDA_SUCCESS) return refused;
  if (const CUresult result = fake_failure(function); result != CUDA_SUCCESS) return result;
  *memory = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  if (*memory == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  ++fake_state().live;
  return CUDA_SUCCESS;
}

template <class Word>
void write_words(void* to, const void* from, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += sizeof(Word)) {
    Word word{};
    std::memcpy(&word, static_cast<const std::byte*>(from) + at, sizeof(Word));
    std::atomic_ref(*reinterpret_cast<Word*>(static_cast<std::byte*>(to) + at)).store(word, std::memory_order_release);
  }
}

/// As GPUs do: who looks meanwhile sees each word as it was or as it will be.
void write_to_host(void* to, const void* from, std::size_t bytes) {
  constexpr std::size_t few = 64;
  const std::uintptr_t odd = reinterpret_cast<std::uintptr_t>(to) | bytes;
  if (bytes > few) {
    std::memcpy(to, from, bytes);
  } else if (odd % 4 == 0) {
    write_words<std::uint32_t>(to, from, bytes);
  } else if (odd % 2 == 0) {
    write_words<std::uint16_t>(to, from, bytes);
  } else {
    write_words<std::uint8_t>(to, from, bytes);
  }
}

CUresult copy(void* to, const void* from, std::size_t bytes, CUstream stream,
              const char* function = __builtin_FUNCTION()) {
  const auto piece = [=] { std::memcpy(to, from, bytes); };
  return enqueue_once(stream, piece, function);
}

/// Whether a device has memory at all of these addresses.
bool is_there(CUdeviceptr address, std::size_t bytes) {
  const auto& allocations = fake_world().allocations;
  if (auto next = allocations.upper_bound(address); next != allocations.begin())
    if (const auto& [begin, allocation] = *std::prev(next); address + bytes <= begin + allocation.second) return true;
  const auto& mapped = fake_world().mapped;
  const CUdeviceptr end = address + bytes;
  while (address < end) {
    const auto next = mapped.upper_bound(address);
    if (next == mapped.begin()) return false;
    const auto& [begin, size] = *std::prev(next);
    if (address >= begin + size) return false;
    address = begin + size;
  }
  return true;
}
/// Whether a copy between two devices can be made now; if not, that is noted.
bool can_copy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
  if (is_there(to, bytes) && is_there(from, bytes)) return true;
  fake_state().misuse.emplace_back("a copy runs when its memory has been unmapped");
  return false;
}

struct Rows {
  std::byte* begin;
  std::size_t pitch;
};
Rows rows_at(CUmemorytype type, const void* host_address, CUdeviceptr address, std::size_t pitch) {
  return {type == CU_MEMORYTYPE_HOST ? static_cast<std::byte*>(const_cast<void*>(host_address))
                                     : static_cast<std::byte*>(host(address)),
          pitch};
}
CUresult copy(const Rows& to, const Rows& from, std::size_t row_bytes, std::size_t rows, CUstream stream,
              const char* function = __builtin_FUNCTION()) {
  if (to.pitch < row_bytes || from.pitch < row_bytes) return CUDA_ERROR_INVALID_VALUE;
  const auto piece = [=] {
    for (std::size_t row = 0; row < rows; ++row)
      std::memcpy(to.begin + row * to.pitch, from.begin + row * from.pitch, row_bytes);
  };
  return enqueue_once(stream, piece, function);
}

// COX_FAKE_CUDA_KILLED and COX_FAKE_CUDA_STOPPED name a function in which the process is: export or import.
void signal_if_asked(const char* function) {
  for (const auto& [variable, signal] :
       {std::pair("COX_FAKE_CUDA_KILLED", SIGKILL), {"COX_FAKE_CUDA_STOPPED", SIGSTOP}})
    if (const char* const where = std::getenv(variable); where != nullptr && std::string_view(where) == function)
      ::raise(signal);
}

}  // namespace

extern "C" {

CUresult cuMemHostAlloc(void** memory, std::size_t bytes, unsigned) {
  const auto lock = lock_fake();
  return allocate(memory, bytes, "cuMemHostAlloc");
}
CUresult cuMemFreeHost(void* memory) {
  const auto lock = lock_fake();
  --fake_state().live;
  std::free(memory);
  return CUDA_SUCCESS;
}
CUresult cuMemAlloc(CUdeviceptr* address, std::size_t bytes) {
  const int device = current_device();
  const auto lock = lock_fake();
  if (!has_room(device, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  void* memory = nullptr;
  const CUresult result = allocate(&memory, bytes, "cuMemAlloc");
  if (result != CUDA_SUCCESS) return result;
  *address = reinterpret_cast<CUdeviceptr>(memory);
  fake_world().allocations[*address] = {device, bytes};
  taken_of(device) += bytes;
  return result;
}
CUresult cuMemFree(CUdeviceptr address) {
  {
    const auto lock = lock_fake();
    const auto found = fake_world().allocations.find(address);
    if (found == fake_world().allocations.end()) {
      fake_state().misuse.emplace_back("memory is given back that was not taken");
      return CUDA_ERROR_INVALID_VALUE;
    }
    const auto [device, bytes] = found->second;
    taken_of(device) -= bytes;
    fake_world().allocations.erase(found);
  }
  return cuMemFreeHost(host(address));
}
// Only memory of cuMemAlloc is known.
CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes, void** values, CUdeviceptr address) {
  const auto lock = lock_fake();
  const auto& allocations = fake_world().allocations;
  auto found = allocations.upper_bound(address);
  if (found != allocations.begin() && address < std::prev(found)->first + std::prev(found)->second.second)
    --found;
  else
    found = allocations.end();
  const bool known = found != allocations.end();
  for (unsigned i = 0; i < count; ++i) {
    switch (attributes[i]) {
      case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *static_cast<unsigned*>(values[i]) = known ? CU_MEMORYTYPE_DEVICE : 0;
        break;
      case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *static_cast<int*>(values[i]) = known ? found->second.first : -2; break;
      case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *static_cast<CUdeviceptr*>(values[i]) = known ? found->first : 0;
        break;
      case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *static_cast<std::size_t*>(values[i]) = known ? found->second.second : 0;
        break;
      case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: *static_cast<unsigned*>(values[i]) = 1; break;
      default: return CUDA_ERROR_NOT_SUPPORTED;
    }
  }
  return CUDA_SUCCESS;
}
CUresult cuMemsetD32(CUdeviceptr address, unsigned value, std::size_t count) {
  if (value == 0 && ::madvise(host(address), count * sizeof(value), MADV_REMOVE) == 0) return CUDA_SUCCESS;
  std::fill_n(static_cast<unsigned*>(host(address)), count, value);
  return CUDA_SUCCESS;
}
CUresult cuMemAddressReserve(CUdeviceptr* address, std::size_t bytes, std::size_t alignment, CUdeviceptr,
                             unsigned long long) {
  const auto lock = lock_fake();
  if (const CUresult result = fake_failure(); result != CUDA_SUCCESS) return result;
  const std::size_t with_room = bytes + alignment;
  void* const found = ::mmap(nullptr, with_room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (found == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  ++fake_state().live;
  *address = (reinterpret_cast<CUdeviceptr>(found) + alignment - 1) / alignment * alignment;
  fake_world().reservations[*address] = {found, with_room};
  return CUDA_SUCCESS;
}
CUresult cuMemAddressFree(CUdeviceptr address, std::size_t) {
  const auto lock = lock_fake();
  const auto found = fake_world().reservations.find(address);
  if (found == fake_world().reservations.end()) {
    fake_state().misuse.emplace_back("addresses are given back that were not reserved");
    return CUDA_ERROR_INVALID_VALUE;
  }
  --fake_state().live;
  const auto [mapped, bytes] = found->second;
  ::munmap(mapped, bytes);
  fake_world().reservations.erase(found);
  return CUDA_SUCCESS;
}
CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, std::size_t bytes, const CUmemAllocationProp* properties,
                     unsigned long long) {
  const auto lock = lock_fake();
  if (const CUresult result = fake_failure(); result != CUDA_SUCCESS) return result;
  const int device = properties->location.id;
  if (bytes > fake_state().largest_piece || !has_room(device, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  const int fd = ::memfd_create("fake device memory", MFD_CLOEXEC);
  const std::size_t marked = bytes + static_cast<std::size_t>(device) * fake_device_mark;
  if (fd < 0 || ::ftruncate(fd, static_cast<off_t>(marked)) != 0) return CUDA_ERROR_OUT_OF_MEMORY;
  ++fake_state().live;
  *handle = handle_of(fd);
  fake_world().pieces[*handle] = {device, bytes};
  taken_of(device) += bytes;
  return CUDA_SUCCESS;
}
CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  const auto lock = lock_fake();
  --fake_state().live;
  const auto [device, bytes] = fake_world().pieces.at(handle);
  taken_of(device) -= bytes;
  fake_world().pieces.erase(handle);
  ::close(fd_of(handle));
  return CUDA_SUCCESS;
}
CUresult cuMemMap(CUdeviceptr address, std::size_t bytes, std::size_t, CUmemGenericAllocationHandle handle,
                  unsigned long long) {
  const auto lock = lock_fake();
  if (const CUresult result = fake_failure(); result != CUDA_SUCCESS) return result;
  void* const found = ::mmap(host(address), bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd_of(handle), 0);
  if (found == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  fake_world().mapped[address] = bytes;
  return CUDA_SUCCESS;
}
CUresult cuMemUnmap(CUdeviceptr address, std::size_t bytes) {
  const auto lock = lock_fake();
  std::erase_if(fake_world().mapped,
                [=](const auto& entry) { return entry.first >= address && entry.first < address + bytes; });
  ::mmap(host(address), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  return CUDA_SUCCESS;
}
CUresult cuMemExportToShareableHandle(void* descriptor, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType,
                                      unsigned long long) {
  signal_if_asked("export");
  const auto lock = lock_fake();
  if (const CUresult result = fake_failure(); result != CUDA_SUCCESS) return result;
  if (fake_state().export_error != 0) return static_cast<CUresult>(fake_state().export_error);
  const int copy = ::fcntl(fd_of(handle), F_DUPFD_CLOEXEC, 0);
  if (copy < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  std::memcpy(descriptor, &copy, sizeof(copy));
  return CUDA_SUCCESS;
}
// The device is encoded in the size of the file: one more page for each device before it.
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* descriptor,
                                        CUmemAllocationHandleType) {
  signal_if_asked("import");
  const auto lock = lock_fake();
  if (const CUresult result = fake_failure(); result != CUDA_SUCCESS) return result;
  if (fake_state().import_error != 0) return static_cast<CUresult>(fake_state().import_error);
  const int given = static_cast<int>(reinterpret_cast<std::uintptr_t>(descriptor));
  struct stat status{};
  const int fd = ::fcntl(given, F_DUPFD_CLOEXEC, 0);
  if (fd < 0 || ::fstat(fd, &status) != 0) return CUDA_ERROR_INVALID_VALUE;
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size < fake_granule) {  // no memory
    ::close(fd);
    return CUDA_ERROR_INVALID_VALUE;
  }
  const int device = static_cast<int>(size % fake_granule / fake_device_mark);
  ++fake_state().live;
  *handle = handle_of(fd);
  fake_world().pieces[*handle] = {device, size / fake_granule * fake_granule};
  taken_of(device) += size / fake_granule * fake_granule;
  return CUDA_SUCCESS;
}
CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* properties, CUmemGenericAllocationHandle handle) {
  const auto lock = lock_fake();
  *properties = {};
  properties->location.id = fake_world().pieces.at(handle).first;
  return CUDA_SUCCESS;
}
CUresult cuMemSetAccess(CUdeviceptr, std::size_t, const CUmemAccessDesc*, std::size_t) {
  const auto lock = lock_fake();
  return fake_failure();
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, std::size_t bytes, CUstream stream) {
  return copy(host(to), from, bytes, stream);
}
CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  return enqueue_once(stream, [=] { write_to_host(to, host(from), bytes); }, "cuMemcpyDtoHAsync");
}
CUresult cuMemcpy2DAsync(const CUDA_MEMCPY2D* all, CUstream stream) {
  return copy(rows_at(all->dstMemoryType, all->dstHost, all->dstDevice, all->dstPitch),
              rows_at(all->srcMemoryType, all->srcHost, all->srcDevice, all->srcPitch), all->WidthInBytes, all->Height,
              stream);
}
CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, std::size_t bytes, CUstream stream) {
  const auto piece = [=] {
    if (can_copy(to, from, bytes)) std::memcpy(host(to), host(from), bytes);
  };
  return enqueue_once(stream, piece, "cuMemcpyPeerAsync");
}
CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER* all, CUstream stream) {
  if (all->Depth != 1) return CUDA_ERROR_NOT_SUPPORTED;
  return copy(rows_at(all->dstMemoryType, all->dstHost, all->dstDevice, all->dstPitch),
              rows_at(all->srcMemoryType, all->srcHost, all->srcDevice, all->srcPitch), all->WidthInBytes, all->Height,
              stream);
}

}  // extern "C"
