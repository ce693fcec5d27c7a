#include <coxswain/servers/cuda/detail/cuda_storage.hpp>

#include <coxswain/servers/cuda/detail/cuda_try.hpp>

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

namespace cox::detail {
namespace {

CUmemLocation location_of(int ordinal) {
  CUmemLocation location{};
  location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  location.id = ordinal;
  return location;
}

std::vector<CUmemAccessDesc> access_for(const CudaContext& context) {
  std::vector<CUmemAccessDesc> access;
  int devices = 0;
  COX_CUDA_TRY(device_count(&devices));
  for (int ordinal = 0; ordinal < devices; ++ordinal) {
    int reachable = 1;
    if (ordinal != context.ordinal()) {
      CUdevice peer = 0;
      COX_CUDA_TRY(device_get(&peer, ordinal));
      COX_CUDA_TRY(device_can_access_peer(&reachable, peer, context.device()));
    }
    if (reachable != 0) access.push_back({location_of(ordinal), CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
  }
  return access;
}

}  // namespace

std::size_t CudaStorage::piece_size_for(std::size_t capacity) noexcept {
  constexpr std::size_t mebibyte = std::size_t{1} << 20U;
  return std::clamp(std::bit_floor(capacity / 4096), 2 * mebibyte, 32 * mebibyte);
}

CudaStorage::CudaStorage(const std::shared_ptr<CudaContext>& context, std::size_t piece_size)
    : context_(context), piece_size_(piece_size), access_(access_for(*context)) {}

MemoryAddress CudaStorage::reserve(std::size_t bytes) {
  behind_.assign(bytes / piece_size_, none);
  CUdeviceptr found = 0;
  if (driver().address_reserve(&found, bytes, piece_size_, 0, 0) != CUDA_SUCCESS) throw std::bad_alloc();
  base_ = found;
  return base_;
}

void CudaStorage::release(MemoryAddress address, std::size_t bytes) noexcept {
  COX_CUDA_CHECK(address_free(address, bytes));
  behind_.clear();
}

bool CudaStorage::map(MemoryAddress address, std::size_t bytes) noexcept {
  std::size_t mapped = 0;
  for (; mapped < bytes; mapped += piece_size_) {
    const PieceIndex piece = make_piece();
    if (piece == none) break;
    if (!put(address + mapped, piece)) {
      drop(piece);
      break;
    }
  }
  if (mapped == bytes && give_access(address, bytes)) return true;
  unmap(address, mapped);
  return false;
}

bool CudaStorage::alias(MemoryAddress from, MemoryAddress to, std::size_t bytes) noexcept {
  std::size_t mapped = 0;
  while (mapped < bytes && put(to + mapped, behind_[index_of(from + mapped)])) mapped += piece_size_;
  if (mapped == bytes && give_access(to, bytes)) return true;
  unmap(to, mapped);
  return false;
}

void CudaStorage::unmap(MemoryAddress address, std::size_t bytes) noexcept {
  if (bytes == 0) return;
  COX_CUDA_CHECK(physical_unmap(address, bytes));  // as many pieces as there are
  for (std::size_t offset = 0; offset < bytes; offset += piece_size_)
    drop(std::exchange(behind_[index_of(address + offset)], none));
}

// None: the device has no more memory, or we have none for our records.
CudaStorage::PieceIndex CudaStorage::make_piece() noexcept {
  try {
    if (free_.empty()) {
      free_.reserve(pieces_.size() + 1);
      pieces_.emplace_back();
      free_.push_back(static_cast<PieceIndex>(pieces_.size() - 1));
    }
  } catch (const std::bad_alloc&) {
    return none;
  }
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = location_of(context_->ordinal());
  const PieceIndex index = free_.back();
  const CUresult result = driver().physical_create(&pieces_[index].handle, piece_size_, &properties, 0);
  if (result != CUDA_SUCCESS) {
    if (result != CUDA_ERROR_OUT_OF_MEMORY) check_cuda(result, "physical_create");
    return none;
  }
  free_.pop_back();
  return index;
}

bool CudaStorage::put(MemoryAddress address, PieceIndex piece) noexcept {
  if (!COX_CUDA_CHECK(physical_map(address, piece_size_, 0, pieces_[piece].handle, 0))) return false;
  ++pieces_[piece].users;
  behind_[index_of(address)] = piece;
  return true;
}

void CudaStorage::drop(PieceIndex piece) noexcept {
  Piece& dropped = pieces_[piece];
  if (dropped.users > 1) {
    --dropped.users;
    return;
  }
  COX_CUDA_CHECK(physical_release(dropped.handle));
  dropped = {};
  free_.push_back(piece);
}

bool CudaStorage::give_access(MemoryAddress address, std::size_t bytes) noexcept {
  return COX_CUDA_CHECK(physical_set_access(address, bytes, access_.data(), access_.size()));
}

}  // namespace cox::detail
