#pragma once

#include <coxswain/runtime/memory/memory_storage.hpp>
#include <coxswain/servers/cuda/detail/cuda_context.hpp>
#include <coxswain/servers/cuda/detail/driver.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace cox::detail {

/// Memory of a GPU, mapped piece by piece behind one range of addresses (the driver's virtual memory management), which
/// waits for no kernel and strands nothing. A piece may be behind several addresses. Peers that can reach the device
/// are given access. Device thread only.
class CudaStorage {
 public:
  /// Bytes of a piece for a device of so much memory: a compromise, since mapping costs by the piece and what is kept
  /// comes in whole pieces. 32 MiB for a GPU of 128 GiB, whose memory is mapped in 0.2 s then, and at least 2 MiB, which
  /// the driver wants.
  [[nodiscard]] static std::size_t piece_size_for(std::size_t capacity) noexcept;

  CudaStorage(const std::shared_ptr<CudaContext>& context, std::size_t piece_size);
  CudaStorage(const CudaStorage&) = delete;
  CudaStorage& operator=(const CudaStorage&) = delete;

  // As AliasingStorage says.
  [[nodiscard]] std::size_t granularity() const noexcept { return piece_size_; }
  [[nodiscard]] MemoryAddress reserve(std::size_t bytes);
  void release(MemoryAddress address, std::size_t bytes) noexcept;
  [[nodiscard]] bool map(MemoryAddress address, std::size_t bytes) noexcept;
  [[nodiscard]] bool alias(MemoryAddress from, MemoryAddress to, std::size_t bytes) noexcept;
  void unmap(MemoryAddress address, std::size_t bytes) noexcept;
  void trim() noexcept {}  // what is not mapped has been given back

 private:
  // A physical piece that is behind `users` addresses.
  struct Piece {
    CUmemGenericAllocationHandle handle = 0;
    std::uint32_t users = 0;
  };
  using PieceIndex = std::uint32_t;  // in pieces_
  static constexpr PieceIndex none = 0;

  [[nodiscard]] std::size_t index_of(MemoryAddress address) const noexcept { return (address - base_) / piece_size_; }
  [[nodiscard]] PieceIndex make_piece() noexcept;
  [[nodiscard]] bool put(MemoryAddress address, PieceIndex piece) noexcept;
  void drop(PieceIndex piece) noexcept;
  [[nodiscard]] bool give_access(MemoryAddress address, std::size_t bytes) noexcept;

  const std::shared_ptr<CudaContext> context_;
  const std::size_t piece_size_;
  std::vector<CUmemAccessDesc> access_;  // the device, and its peers
  MemoryAddress base_ = 0;
  std::vector<PieceIndex> behind_;  // by index of the address
  std::vector<Piece> pieces_{1};    // the first is none
  std::vector<PieceIndex> free_;    // places in pieces_, with room for all
};

static_assert(AliasingStorage<CudaStorage>);

}  // namespace cox::detail
