#pragma once

#include <coxswain/runtime/memory/memory_storage.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace cox::detail {

/// Memory of this process behind addresses of its own choice, as a GPU's virtual memory management puts it: the pieces
/// of an anonymous file, each behind one address or several. The system finds the pages when they are first touched.
/// Any thread, one at a time. A forked child shares the memory with its parent.
class HostStorage {
 public:
  /// `granularity`: bytes, a power of two and at least a page.
  explicit HostStorage(std::size_t granularity) noexcept : granularity_(granularity) {}
  HostStorage(const HostStorage&) = delete;
  HostStorage& operator=(const HostStorage&) = delete;
  ~HostStorage();

  // As AliasingStorage says; one range of addresses can be reserved at a time.
  [[nodiscard]] std::size_t granularity() const noexcept { return granularity_; }
  [[nodiscard]] MemoryAddress reserve(std::size_t bytes);
  void release(MemoryAddress address, std::size_t bytes) noexcept;
  [[nodiscard]] bool map(MemoryAddress address, std::size_t bytes) noexcept;
  [[nodiscard]] bool alias(MemoryAddress from, MemoryAddress to, std::size_t bytes) noexcept;
  void unmap(MemoryAddress address, std::size_t bytes) noexcept;
  void trim() noexcept {}  // what is not mapped has been given back
  // As GuardedStorage says: an access is reported by the address sanitizer, where that is built in.
  void guard(MemoryAddress address, std::size_t bytes) noexcept;
  void unguard(MemoryAddress address, std::size_t bytes) noexcept;

 private:
  using Piece = std::uint32_t;  // of the file, `granularity_` bytes; 0: none
  static constexpr Piece none = 0;

  [[nodiscard]] std::size_t index_of(MemoryAddress address) const noexcept { return (address - base_) / granularity_; }
  // Puts these pieces behind successive addresses. Nothing has changed if it returns false.
  [[nodiscard]] bool map_pieces(MemoryAddress address, const std::vector<Piece>& pieces);
  [[nodiscard]] std::vector<Piece> allocate_pieces(std::size_t count);
  void release_piece(Piece piece) noexcept;

  std::size_t granularity_;
  int file_ = -1;
  MemoryAddress base_ = 0;
  std::vector<Piece> mapped_;         // by index of the address
  std::vector<std::uint32_t> users_;  // by piece: the addresses it is mapped at
  std::vector<Piece> free_;           // with room for all pieces
};

static_assert(AliasingStorage<HostStorage>);

}  // namespace cox::detail
