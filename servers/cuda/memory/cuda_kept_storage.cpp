#include <coxswain/servers/cuda/memory/cuda_kept_storage.hpp>

#include <coxswain/runtime/base/byte_count.hpp>
#include <coxswain/runtime/kept/kept_error.hpp>
#include <coxswain/servers/cuda/driver/cuda_try.hpp>
#include <coxswain/servers/cuda/driver/driver_object.hpp>
#include <coxswain/servers/cuda/memory/cuda_storage.hpp>

#include <fcntl.h>
#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>
#include <utility>

namespace cox::detail {
namespace {

CUmemAllocationProp properties_of(const CudaContext& context) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = context.ordinal()};
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return properties;
}

[[noreturn]] void fail(const CudaContext& context, const std::string& why, std::source_location site) {
  throw KeptError(KeptError::Kind::Memory, "kept memory of GPU " + std::to_string(context.ordinal()) + " " + why, site);
}

}  // namespace

CudaKeptStorage::CudaKeptStorage(std::shared_ptr<CudaContext> context, std::size_t bytes)
    : context_(std::move(context)), reserved_(bytes) {
  COX_CUDA_TRY(address_reserve(&base_, reserved_, CudaStorage::granule, 0, 0));
}

CudaKeptStorage::~CudaKeptStorage() {
  const CurrentContext current(*context_);
  if (mapped_ != 0) COX_CUDA_CHECK(physical_unmap(base_, mapped_));
  for (const CUmemGenericAllocationHandle piece : pieces_) COX_CUDA_CHECK(physical_release(piece));
  COX_CUDA_CHECK(address_free(base_, reserved_));
}

std::size_t CudaKeptStorage::bytes_for(std::size_t bytes) noexcept {
  return (std::max<std::size_t>(bytes, 1) + CudaStorage::granule - 1) / CudaStorage::granule * CudaStorage::granule;
}

std::shared_ptr<CudaKeptStorage> CudaKeptStorage::create(std::shared_ptr<CudaContext> context, std::size_t bytes,
                                                         std::source_location site) {
  const CurrentContext current(*context);
  std::shared_ptr<CudaKeptStorage> memory(new CudaKeptStorage(std::move(context), bytes_for(bytes)));
  memory->create_pieces(site);
  memory->give_access();
  memory->set_zero();
  return memory;
}

std::shared_ptr<CudaKeptStorage> CudaKeptStorage::adopt(std::shared_ptr<CudaContext> context, std::size_t bytes,
                                                        const KeptPieceSource& pieces, std::source_location site) {
  const CurrentContext current(*context);
  std::shared_ptr<CudaKeptStorage> memory(new CudaKeptStorage(std::move(context), bytes_for(bytes)));
  for (bool is_last = false; !is_last;) {
    KeptPieces next = pieces();
    is_last = next.are_last;
    for (std::size_t i = 0; i < next.sizes.size(); ++i) {
      memory->import_piece(next.descriptors[i].get(), next.sizes[i], site);
      next.descriptors[i].reset();
    }
  }
  if (memory->mapped_ != memory->reserved_) fail(*memory->context_, "has pieces of a wrong size", site);
  memory->give_access();
  return memory;
}

void CudaKeptStorage::import_piece(int descriptor, std::size_t bytes, std::source_location site) {
  if (bytes % CudaStorage::granule != 0 || bytes > reserved_ - mapped_)
    fail(*context_, "has pieces of a wrong size", site);
  pieces_.reserve(pieces_.size() + 1);  // else a piece that was imported could be leaked
  CUmemGenericAllocationHandle piece = 0;
  const CUresult result =
      driver().physical_import(&piece, reinterpret_cast<void*>(static_cast<std::uintptr_t>(descriptor)),
                               CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  // The memory that a descriptor stands for does not exist, if that of this process can be imported. Anything else,
  // such as a GPU fault, may be no fault of it.
  const bool is_lost = (result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_INVALID_HANDLE) && can_import();
  if (result != CUDA_SUCCESS && !is_lost) throw_cuda_error(result, "physical_import", site);
  if (is_lost)
    throw KeptError(KeptError::Kind::Lost,
                    "kept memory of GPU " + std::to_string(context_->ordinal()) +
                        " is lost: it cannot be imported, because the GPU was reset or another driver is loaded",
                    site);
  pieces_.push_back(piece);
  CUmemAllocationProp properties{};
  COX_CUDA_TRY(physical_properties(&properties, piece));
  if (properties.location.id != context_->ordinal())
    fail(*context_, "belongs to GPU " + std::to_string(properties.location.id), site);
  map(piece, bytes);
}

// Whether a new piece can be exported and imported.
bool CudaKeptStorage::can_import() const {
  const CUmemAllocationProp properties = properties_of(*context_);
  CUmemGenericAllocationHandle piece = 0;
  if (driver().physical_create(&piece, CudaStorage::granule, &properties, 0) != CUDA_SUCCESS) return false;
  int native = -1;
  CUresult result = driver().physical_export(&native, piece, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  const FileDescriptor descriptor(native);
  CUmemGenericAllocationHandle imported = 0;
  if (result == CUDA_SUCCESS)
    result = driver().physical_import(&imported, reinterpret_cast<void*>(static_cast<std::uintptr_t>(descriptor.get())),
                                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  if (result == CUDA_SUCCESS) COX_CUDA_CHECK(physical_release(imported));
  COX_CUDA_CHECK(physical_release(piece));
  return result == CUDA_SUCCESS;
}

void* CudaKeptStorage::address() const noexcept { return std::bit_cast<void*>(base_); }

// The largest pieces that the driver has.
void CudaKeptStorage::create_pieces(std::source_location site) {
  const CUmemAllocationProp properties = properties_of(*context_);
  for (std::size_t most = std::min(max_piece, std::bit_floor(reserved_)); mapped_ < reserved_;) {
    const std::size_t size = std::min(most, reserved_ - mapped_);
    pieces_.reserve(pieces_.size() + 1);  // else a piece that was created could be leaked
    sizes_.reserve(sizes_.size() + 1);
    CUmemGenericAllocationHandle piece = 0;
    const CUresult result = driver().physical_create(&piece, size, &properties, 0);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && size > CudaStorage::granule) {
      most = std::bit_floor(size - 1);
      continue;
    }
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
      fail(*context_, "of " + format_byte_count(reserved_) + " does not fit", site);
    check_cuda(result, "physical_create");
    if (result != CUDA_SUCCESS) fail(*context_, "cannot be created by this driver", site);
    pieces_.push_back(piece);
    sizes_.push_back(size);
    map(piece, size);
  }
}

KeptPieces CudaKeptStorage::next_pieces(std::source_location site) {
  const CurrentContext current(*context_);
  KeptPieces next;
  next.descriptors.reserve(KeeperMessage::pieces_at_a_time);
  next.sizes.reserve(KeeperMessage::pieces_at_a_time);
  while (exported_ < sizes_.size() && next.sizes.size() < KeeperMessage::pieces_at_a_time) {
    int descriptor = -1;
    const CUresult result =
        driver().physical_export(&descriptor, pieces_[exported_], CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    check_cuda(result, "physical_export");
    if (result != CUDA_SUCCESS)
      throw KeptError(KeptError::Kind::Descriptors,
                      "piece " + std::to_string(exported_ + 1) + " of " + std::to_string(sizes_.size()) +
                          " of kept memory gets no file descriptor: " + describe(result),
                      site);
    static_cast<void>(fcntl(descriptor, F_SETFD, FD_CLOEXEC));
    next.descriptors.emplace_back(descriptor);
    next.sizes.push_back(sizes_[exported_++]);
  }
  next.are_last = exported_ == sizes_.size();
  return next;
}

void CudaKeptStorage::map(CUmemGenericAllocationHandle piece, std::size_t bytes) {
  COX_CUDA_TRY(physical_map(base_ + mapped_, bytes, 0, piece, 0));
  mapped_ += bytes;
}

void CudaKeptStorage::give_access() {
  const std::vector<CUmemAccessDesc> access = access_for(*context_);
  COX_CUDA_TRY(physical_set_access(base_, mapped_, access.data(), access.size()));
}

void CudaKeptStorage::set_zero() {
  COX_CUDA_TRY(memory_set(base_, 0, mapped_ / sizeof(std::uint32_t)));
  COX_CUDA_TRY(stream_synchronize(nullptr));
}

}  // namespace cox::detail
