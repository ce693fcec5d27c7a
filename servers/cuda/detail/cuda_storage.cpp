#include <coxswain/servers/cuda/detail/cuda_storage.hpp>

#include <coxswain/servers/cuda/detail/cuda_try.hpp>

#include <new>

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

CudaStorage::CudaStorage(const std::shared_ptr<CudaContext>& context)
    : context_(context), access_(access_for(*context)) {}

MemoryAddress CudaStorage::reserve(std::size_t bytes) {
  behind_.assign(bytes / piece_size, none);
  CUdeviceptr found = 0;
  if (driver().address_reserve(&found, bytes, piece_size, 0, 0) != CUDA_SUCCESS) throw std::bad_alloc();
  base_ = found;
  return base_;
}

void CudaStorage::release(MemoryAddress address, std::size_t bytes) noexcept {
  COX_CUDA_CHECK(address_free(address, bytes));
  behind_.clear();
}

bool CudaStorage::map(MemoryAddress address, std::size_t bytes) noexcept {
  std::size_t mapped = 0;
  for (; mapped < bytes; mapped += piece_size) {
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
  while (mapped < bytes && put(to + mapped, behind_[index_of(from + mapped)])) mapped += piece_size;
  if (mapped == bytes && give_access(to, bytes)) return true;
  unmap(to, mapped);
  return false;
}

void CudaStorage::unmap(MemoryAddress address, std::size_t bytes) noexcept {
  for (std::size_t offset = 0; offset < bytes; offset += piece_size) {
    COX_CUDA_CHECK(physical_unmap(address + offset, piece_size));
    PieceIndex& piece = behind_[index_of(address + offset)];
    drop(piece);
    piece = none;
  }
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
  const CUresult result = driver().physical_create(&pieces_[index].handle, piece_size, &properties, 0);
  if (result != CUDA_SUCCESS) {
    if (result != CUDA_ERROR_OUT_OF_MEMORY) check_cuda(result, "physical_create");
    return none;
  }
  free_.pop_back();
  return index;
}

bool CudaStorage::put(MemoryAddress address, PieceIndex piece) noexcept {
  if (!COX_CUDA_CHECK(physical_map(address, piece_size, 0, pieces_[piece].handle, 0))) return false;
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
