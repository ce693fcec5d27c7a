#pragma once

#include <coxswain/runtime/base/shape.hpp>
#include <coxswain/runtime/handle/handle.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace cox::test {

/// How much device memory a random program has taken, and how much of what it dropped queued work may still use.
struct ProgramAccount {
  std::size_t bytes = 0;
  std::size_t allocations = 0;
  std::size_t dropped_bytes = 0;
  std::size_t dropped_allocations = 0;
};

/// One allocation in the account of the program that has its handles.
class ProgramStorage {
 public:
  explicit ProgramStorage(std::size_t bytes) : bytes_(bytes) {}
  ProgramStorage(const ProgramStorage&) = delete;
  ProgramStorage& operator=(const ProgramStorage&) = delete;
  ~ProgramStorage() {
    if (account_ == nullptr) return;
    leave();
    account_->dropped_bytes += bytes_;
    ++account_->dropped_allocations;
  }
  /// Null: handed over to another program, which has not taken it yet.
  void move_to(ProgramAccount* account) {
    if (account_ != nullptr) leave();
    account_ = account;
    if (account_ == nullptr) return;
    account_->bytes += bytes_;
    ++account_->allocations;
  }

 private:
  void leave() const {
    account_->bytes -= bytes_;
    --account_->allocations;
  }

  std::size_t bytes_;
  ProgramAccount* account_ = nullptr;
};

/// Something a program did with a region.
struct ProgramTouch {
  std::size_t step = 0;
  std::uint64_t stream = 0;
  const char* what = nullptr;
};
/// The last of them; the oldest is overwritten.
using ProgramTouches = std::array<ProgramTouch, 12>;

/// What one buffer of the program must hold.
struct ProgramRegion {
  std::uint64_t id = 0;
  std::vector<std::uint32_t> words;
  Shape shape;  ///< as it was allocated
  Strides strides;
  std::size_t elem_size = 4;
  bool defined = true;    ///< also what is between the rows
  bool constant = false;  ///< of all programs; nobody writes it or notes touches
  std::shared_ptr<ProgramStorage> storage;
  ProgramTouches touches{};
  std::size_t touched = 0;

  [[nodiscard]] std::span<std::byte> bytes() { return std::as_writable_bytes(std::span(words)); }
  void touch(std::size_t step, std::uint64_t stream, const char* what) {
    if (!constant) touches[touched++ % touches.size()] = {step, stream, what};
  }
};

/// A handle, and what it refers to.
struct ProgramWindow {
  Handle handle;
  std::shared_ptr<ProgramRegion> region;
  std::size_t offset = 0;  ///< bytes into the region

  [[nodiscard]] std::size_t size() const noexcept { return handle.size_in_used(); }
  [[nodiscard]] bool is_whole() const noexcept { return size() == region->words.size() * 4; }
  [[nodiscard]] std::span<std::byte> bytes() const { return region->bytes().subspan(offset, size()); }
  [[nodiscard]] std::span<std::uint32_t> words() const {
    return std::span(region->words).subspan(offset / 4, size() / 4);
  }
  [[nodiscard]] ProgramWindow part(std::size_t begin, std::size_t length) const {
    return {handle.offset_start(begin).offset_end(size() - begin - length), region, offset + begin};
  }
  [[nodiscard]] bool overlaps(const ProgramWindow& other) const noexcept {
    return region == other.region && offset < other.offset + other.size() && other.offset < offset + size();
  }
};

/// The rows of a tensor within a window, as copies see them. Bytes.
struct ProgramRows {
  std::size_t rows = 1;
  std::size_t row = 0;
  std::size_t pitch = 0;
};
/// Those of the whole region.
inline ProgramRows rows_of(const ProgramRegion& region) {
  const std::size_t rank = region.shape.size();
  const std::size_t row = region.shape[rank - 1] * region.elem_size;
  if (rank == 1) return {1, row, row};
  std::size_t rows = 1;
  for (std::size_t i = 0; i + 1 < rank; ++i) rows *= region.shape[i];
  return {rows, row, region.strides[rank - 2] * region.elem_size};
}
inline std::vector<std::byte> gather(std::span<const std::byte> device, const ProgramRows& rows) {
  std::vector<std::byte> dense(rows.rows * rows.row);
  for (std::size_t i = 0; i < rows.rows; ++i)
    std::memcpy(dense.data() + i * rows.row, device.data() + i * rows.pitch, rows.row);
  return dense;
}
inline void scatter(std::span<const std::byte> dense, std::span<std::byte> device, const ProgramRows& rows) {
  for (std::size_t i = 0; i < rows.rows; ++i)
    std::memcpy(device.data() + i * rows.pitch, dense.data() + i * rows.row, rows.row);
}

}  // namespace cox::test
