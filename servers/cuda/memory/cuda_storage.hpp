#pragma once

#include <coxswain/runtime/memory/granularity.hpp>
#include <coxswain/runtime/memory/mapped_backing.hpp>
#include <coxswain/runtime/memory/memory_storage.hpp>
#include <coxswain/runtime/memory/piece_map.hpp>
#include <coxswain/servers/cuda/device/cuda_context.hpp>
#include <coxswain/servers/cuda/driver/driver.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace cox::detail {

/// Access descriptors of the device and of those of its peers that can reach it. Throws CudaError, std::bad_alloc.
[[nodiscard]] std::vector<CUmemAccessDesc> access_for(const CudaContext& context);

/// Memory of a GPU, mapped piece by piece into one range of addresses (the driver's virtual memory management). Mapping
/// and unmapping wait for no kernel, and free memory can always be mapped elsewhere, so that fragmentation wastes none.
/// A piece may be mapped at several addresses. Peers that can reach the device are given access. Device thread only.
///
/// The cost of a piece does not depend on its size: about 100 us to create, map, unmap and release it. But a piece is
/// returned to the driver only as a whole, so that recorded training programs hold more memory with large pieces (1.28
/// times their peak with 32 MiB, 1.02 with 2 MiB). So a piece is a sixty-fourth of what one call maps: large where much
/// is mapped, small where little is.
class CudaStorage {
 public:
  /// The smallest size that the driver maps, in bytes.
  static constexpr std::size_t granule = std::size_t{2} << 20U;

  explicit CudaStorage(const std::shared_ptr<CudaContext>& context);
  CudaStorage(const CudaStorage&) = delete;
  CudaStorage& operator=(const CudaStorage&) = delete;

  // See AliasingStorage.
  [[nodiscard]] std::size_t granularity() const noexcept { return granule; }
  [[nodiscard]] MemoryAddress reserve(std::size_t bytes);
  void release(MemoryAddress address, std::size_t bytes) noexcept;
  [[nodiscard]] bool map(MemoryAddress address, std::size_t bytes) noexcept;
  [[nodiscard]] bool alias(MemoryAddress from, MemoryAddress to, std::size_t bytes) noexcept;
  void unmap(MemoryAddress address, std::size_t bytes) noexcept;
  void trim() noexcept {}  // unmapped memory has already been returned to the driver
  // See PieceStorage.
  [[nodiscard]] MemoryRange last_pieces(const MemoryRange& range, std::size_t most,
                                        PieceMap::Excess excess) const noexcept;

 private:
  // Memory of the driver that is mapped at `users` addresses.
  struct Piece {
    CUmemGenericAllocationHandle handle = 0;
    std::uint16_t granules = 0;
    std::uint16_t users = 0;
  };
  using PieceIndex = PieceMap::Piece;  // index in pieces_

  [[nodiscard]] std::size_t index_of(MemoryAddress address) const noexcept { return (address - base_) / granule; }
  [[nodiscard]] PieceIndex make_piece(std::size_t most) noexcept;
  [[nodiscard]] bool map_piece(MemoryAddress address, PieceIndex piece) noexcept;
  void release_piece(PieceIndex piece) noexcept;
  [[nodiscard]] bool give_access(MemoryAddress address, std::size_t bytes) noexcept;

  const std::shared_ptr<CudaContext> context_;
  std::vector<CUmemAccessDesc> access_;  // for the device and its peers
  MemoryAddress base_ = 0;
  PieceMap mapped_;
  std::vector<Piece> pieces_{1};  // index 0 means none
  std::vector<PieceIndex> free_;  // unused indices of pieces_, with capacity for all
};

static_assert(AliasingStorage<CudaStorage> && PieceStorage<CudaStorage>);

}  // namespace cox::detail
