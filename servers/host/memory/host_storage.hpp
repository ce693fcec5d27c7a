#pragma once

#include <coxswain/runtime/memory/memory_storage.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace cox::detail {

/// Memory of this process at addresses that the caller chooses, like a GPU's virtual memory management: pieces of an
/// anonymous file, each mapped at one or more addresses. The system allocates the pages when they are first accessed.
/// Any thread, one at a time. A forked child shares the memory with its parent.
class HostStorage {
 public:
  /// `granularity`: bytes, a power of two and at least a page.
  explicit HostStorage(std::size_t granularity) noexcept : granularity_(granularity) {}
  HostStorage(const HostStorage&) = delete;
  HostStorage& operator=(const HostStorage&) = delete;
  ~HostStorage();

  // See AliasingStorage. Only one range of addresses can be reserved at a time.
  [[nodiscard]] std::size_t granularity() const noexcept { return granularity_; }
  [[nodiscard]] MemoryAddress reserve(std::size_t bytes);
  void release(MemoryAddress address, std::size_t bytes) noexcept;
  [[nodiscard]] bool map(MemoryAddress address, std::size_t bytes) noexcept;
  [[nodiscard]] bool alias(MemoryAddress from, MemoryAddress to, std::size_t bytes) noexcept;
  void unmap(MemoryAddress address, std::size_t bytes) noexcept;
  void trim() noexcept {}  // unmapped memory has already been returned to the system
  // See GuardedStorage. In a build with the address sanitizer, an access to guarded memory is reported.
  void guard(MemoryAddress address, std::size_t bytes) noexcept;
  void unguard(MemoryAddress address, std::size_t bytes) noexcept;

 private:
  using Piece = std::uint32_t;  // number of a piece of the file, of `granularity_` bytes; 0: none
  static constexpr Piece none = 0;

  [[nodiscard]] std::size_t index_of(MemoryAddress address) const noexcept { return (address - base_) / granularity_; }
  // Maps these pieces at successive addresses. If it returns false, nothing has changed.
  [[nodiscard]] bool map_pieces(MemoryAddress address, const std::vector<Piece>& pieces);
  [[nodiscard]] std::vector<Piece> allocate_pieces(std::size_t count);
  void release_piece(Piece piece) noexcept;

  std::size_t granularity_;
  int file_ = -1;
  MemoryAddress base_ = 0;
  std::vector<Piece> mapped_;         // the piece mapped at each address, by index_of(address)
  std::vector<std::uint32_t> users_;  // by piece: number of addresses at which it is mapped
  std::vector<Piece> free_;           // with capacity for all pieces
};

static_assert(AliasingStorage<HostStorage>);

}  // namespace cox::detail
