#include <coxswain/servers/host/memory/host_storage.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <new>

// The header is missing where the sanitizers of the compiler are not installed.
#if __has_include(<sanitizer/asan_interface.h>)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, bytes) (static_cast<void>(address), static_cast<void>(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(address, bytes) (static_cast<void>(address), static_cast<void>(bytes))
#endif

namespace cox::detail {
namespace {

void* pointer(MemoryAddress address) noexcept { return reinterpret_cast<void*>(static_cast<std::uintptr_t>(address)); }

constexpr MemoryAddress aligned_up(MemoryAddress address, std::size_t step) noexcept {
  return (address + step - 1) / step * step;
}

// Replaces the mapping by reserved, inaccessible addresses. If mmap fails, the old memory stays accessible. This is
// harmless: these addresses are not given out.
void leave_bare(MemoryAddress address, std::size_t bytes) noexcept {
  [[maybe_unused]] void* const found =
      mmap(pointer(address), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

}  // namespace

HostStorage::~HostStorage() {
  if (file_ >= 0) close(file_);
}

MemoryAddress HostStorage::reserve(std::size_t bytes) {
  if (file_ < 0) file_ = memfd_create("cox-host-memory", MFD_CLOEXEC);
  if (file_ < 0) throw std::bad_alloc();
  if (users_.empty()) users_.push_back(0);  // piece 0 means none
  // mmap aligns to pages only: reserve more, and unmap what lies before and after the aligned range.
  const std::size_t taken = bytes + granularity_;
  if (taken < bytes) throw std::bad_alloc();
  void* const found = mmap(nullptr, taken, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (found == MAP_FAILED) throw std::bad_alloc();
  const auto begin = static_cast<MemoryAddress>(reinterpret_cast<std::uintptr_t>(found));
  base_ = aligned_up(begin, granularity_);
  if (base_ != begin) munmap(found, base_ - begin);
  if (const MemoryAddress end = begin + taken; end != base_ + bytes)
    munmap(pointer(base_ + bytes), end - base_ - bytes);
  return base_;
}

void HostStorage::release(MemoryAddress address, std::size_t bytes) noexcept {
  munmap(pointer(address), bytes);
  mapped_.clear();
}

bool HostStorage::map(MemoryAddress address, std::size_t bytes) noexcept {
  try {
    const std::vector<Piece> pieces = allocate_pieces(bytes / granularity_);
    if (map_pieces(address, pieces)) return true;
    for (const Piece piece : pieces) free_.push_back(piece);
  } catch (const std::bad_alloc&) {
  }
  return false;
}

bool HostStorage::alias(MemoryAddress from, MemoryAddress to, std::size_t bytes) noexcept {
  try {
    const auto first = mapped_.begin() + static_cast<std::ptrdiff_t>(index_of(from));
    return map_pieces(to, {first, first + static_cast<std::ptrdiff_t>(bytes / granularity_)});
  } catch (const std::bad_alloc&) {
    return false;
  }
}

void HostStorage::unmap(MemoryAddress address, std::size_t bytes) noexcept {
  ASAN_UNPOISON_MEMORY_REGION(pointer(address), bytes);  // the process may map other memory at these addresses
  leave_bare(address, bytes);
  const std::size_t first = index_of(address);
  for (std::size_t i = first; i < first + bytes / granularity_; ++i) {
    if (--users_[mapped_[i]] == 0) release_piece(mapped_[i]);
    mapped_[i] = none;
  }
}

void HostStorage::guard([[maybe_unused]] MemoryAddress address, [[maybe_unused]] std::size_t bytes) noexcept {
  ASAN_POISON_MEMORY_REGION(pointer(address), bytes);
}

void HostStorage::unguard([[maybe_unused]] MemoryAddress address, [[maybe_unused]] std::size_t bytes) noexcept {
  ASAN_UNPOISON_MEMORY_REGION(pointer(address), bytes);
}

bool HostStorage::map_pieces(MemoryAddress address, const std::vector<Piece>& pieces) {
  const std::size_t first = index_of(address);
  if (mapped_.size() < first + pieces.size()) mapped_.resize(first + pieces.size(), none);
  for (std::size_t begin = 0; begin < pieces.size();) {
    std::size_t end = begin + 1;
    while (end < pieces.size() && pieces[end] == pieces[end - 1] + 1) ++end;
    const auto offset = static_cast<off_t>(std::size_t{pieces[begin]} * granularity_);
    void* const at = pointer(address + begin * granularity_);
    const int flags = MAP_SHARED | MAP_FIXED | MAP_NORESERVE;
    if (mmap(at, (end - begin) * granularity_, PROT_READ | PROT_WRITE, flags, file_, offset) == MAP_FAILED) {
      leave_bare(address, pieces.size() * granularity_);
      return false;
    }
    begin = end;
  }
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    mapped_[first + i] = pieces[i];
    ++users_[pieces[i]];
  }
  return true;
}

std::vector<HostStorage::Piece> HostStorage::allocate_pieces(std::size_t count) {
  std::vector<Piece> pieces;
  pieces.reserve(count);
  const std::size_t fresh = count - std::min(count, free_.size());
  const std::size_t all = users_.size() + fresh;
  free_.reserve(all);  // so that release_piece never allocates
  if (fresh != 0 && ftruncate(file_, static_cast<off_t>(all * granularity_)) != 0) throw std::bad_alloc();
  users_.reserve(all);
  while (pieces.size() < count - fresh) {
    pieces.push_back(free_.back());
    free_.pop_back();
  }
  std::ranges::sort(pieces);  // adjacent pieces need only one call of mmap
  while (pieces.size() < count) {
    pieces.push_back(static_cast<Piece>(users_.size()));
    users_.push_back(0);
  }
  return pieces;
}

void HostStorage::release_piece(Piece piece) noexcept {
  const auto offset = static_cast<off_t>(std::size_t{piece} * granularity_);
  fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, static_cast<off_t>(granularity_));
  free_.push_back(piece);
}

}  // namespace cox::detail
