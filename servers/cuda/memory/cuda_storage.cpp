#include <coxswain/servers/cuda/memory/cuda_storage.hpp>

#include <coxswain/servers/cuda/driver/cuda_try.hpp>

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

namespace cox::detail {
namespace {

constexpr std::size_t max_granules = 16;  // in one piece

CUmemLocation location_of(int ordinal) {
  CUmemLocation location{};
  location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  location.id = ordinal;
  return location;
}

}  // namespace

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

CudaStorage::CudaStorage(const std::shared_ptr<CudaContext>& context)
    : context_(context), access_(access_for(*context)) {}

MemoryAddress CudaStorage::reserve(std::size_t bytes) {
  mapped_.reset(bytes / granule);
  CUdeviceptr found = 0;
  if (driver().address_reserve(&found, bytes, granule, 0, 0) != CUDA_SUCCESS) throw std::bad_alloc();
  base_ = found;
  return base_;
}

void CudaStorage::release(MemoryAddress address, std::size_t bytes) noexcept {
  COX_CUDA_CHECK(address_free(address, bytes));
  mapped_.reset(0);
}

bool CudaStorage::map(MemoryAddress address, std::size_t bytes) noexcept {
  const std::size_t wanted = std::clamp(std::bit_floor(bytes / granule / 64), std::size_t{1}, max_granules);
  std::size_t mapped = 0;
  while (mapped < bytes) {
    const PieceIndex piece = make_piece(std::min(wanted, std::bit_floor((bytes - mapped) / granule)));
    if (piece == PieceMap::none) break;
    if (!map_piece(address + mapped, piece)) {
      release_piece(piece);
      break;
    }
    mapped += pieces_[piece].granules * granule;
  }
  if (mapped == bytes && give_access(address, bytes)) return true;
  unmap(address, mapped);
  return false;
}

bool CudaStorage::alias(MemoryAddress from, MemoryAddress to, std::size_t bytes) noexcept {
  std::size_t mapped = 0;
  while (mapped < bytes) {
    const std::size_t first = index_of(from + mapped);
    if (!map_piece(to + mapped, mapped_.piece_at(first))) break;
    mapped += mapped_.size_at(first) * granule;
  }
  if (mapped == bytes && give_access(to, bytes)) return true;
  unmap(to, mapped);
  return false;
}

void CudaStorage::unmap(MemoryAddress address, std::size_t bytes) noexcept {
  if (bytes == 0) return;
  COX_CUDA_CHECK(physical_unmap(address, bytes));  // one call for all pieces of the range
  const std::size_t end = index_of(address + bytes);
  for (std::size_t first = index_of(address); first < end;) {
    const std::size_t size = mapped_.size_at(first);
    const PieceIndex piece = mapped_.piece_at(first);
    mapped_.remove(first);
    release_piece(piece);
    first += size;
  }
}

MemoryRange CudaStorage::last_pieces(const MemoryRange& range, std::size_t most,
                                     PieceMap::Excess excess) const noexcept {
  if (range.bytes == 0) return {};
  const std::size_t granules = excess == PieceMap::Excess::Allowed && most % granule != 0
                                   ? most / granule + 1  // does not overflow, unlike a sum
                                   : most / granule;
  const PieceMap::Run run =
      mapped_.last_whole(index_of(range.address), index_of(range.address + range.bytes), granules, excess);
  return {base_ + run.first * granule, run.count * granule};
}

// Creates a piece of at most `most` granules, a power of two; a smaller one if the driver has less memory. Returns
// PieceMap::none if the driver has no memory, or if there is no host memory for our records.
CudaStorage::PieceIndex CudaStorage::make_piece(std::size_t most) noexcept {
  try {
    if (free_.empty()) {
      free_.reserve(pieces_.size() + 1);
      pieces_.emplace_back();
      free_.push_back(static_cast<PieceIndex>(pieces_.size() - 1));
    }
  } catch (const std::bad_alloc&) {
    return PieceMap::none;
  }
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = location_of(context_->ordinal());
  const PieceIndex index = free_.back();
  for (std::size_t granules = most; granules != 0; granules /= 2) {
    const CUresult result = driver().physical_create(&pieces_[index].handle, granules * granule, &properties, 0);
    if (result == CUDA_SUCCESS) {
      pieces_[index].granules = static_cast<std::uint16_t>(granules);
      free_.pop_back();
      return index;
    }
    if (result != CUDA_ERROR_OUT_OF_MEMORY) {
      check_cuda(result, "physical_create");
      break;
    }
  }
  return PieceMap::none;
}

bool CudaStorage::map_piece(MemoryAddress address, PieceIndex piece) noexcept {
  Piece& behind = pieces_[piece];
  if (!COX_CUDA_CHECK(physical_map(address, behind.granules * granule, 0, behind.handle, 0))) return false;
  ++behind.users;
  mapped_.put(index_of(address), piece, behind.granules);
  return true;
}

void CudaStorage::release_piece(PieceIndex piece) noexcept {
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
