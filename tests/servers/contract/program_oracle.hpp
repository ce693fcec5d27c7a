#pragma once

#include <coxswain/runtime/base/shape.hpp>
#include <coxswain/runtime/handle/handle.hpp>
#include <coxswain/tests/servers/contract/program_failure.hpp>

#include <algorithm>
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

/// One allocation in the account of the program that has its handles, and whether its contents are good (L14).
class ProgramStorage {
 public:
  /// `bytes`: in the account; `size`: of the allocation.
  ProgramStorage(std::size_t bytes, std::size_t size) : bytes_(bytes), size_(size) {}
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

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  /// Null: the contents are good.
  [[nodiscard]] const std::shared_ptr<ProgramCause>& poison() const noexcept { return poison_; }
  /// An operation that should have written it has failed. The first cause stays.
  void poison_with(const std::shared_ptr<ProgramCause>& cause) {
    if (poison_ == nullptr) poison_ = cause;
  }
  void heal() noexcept { poison_ = nullptr; }

 private:
  void leave() const {
    account_->bytes -= bytes_;
    --account_->allocations;
  }

  std::size_t bytes_;
  std::size_t size_;
  ProgramAccount* account_ = nullptr;
  std::shared_ptr<ProgramCause> poison_;
};

/// Something a program did with a region.
struct ProgramTouch {
  std::size_t step = 0;
  std::uint64_t stream = 0;
  const char* what = nullptr;
};
/// The last of them; the oldest is overwritten.
using ProgramTouches = std::array<ProgramTouch, 12>;

/// One line each, in order.
inline std::string history_of(const ProgramTouches& touches) {
  std::vector<ProgramTouch> sorted(touches.begin(), touches.end());
  std::ranges::sort(sorted, {}, &ProgramTouch::step);
  std::string text;
  for (const ProgramTouch& touch : sorted)
    if (touch.what != nullptr)
      text +=
          "\n    step " + std::to_string(touch.step) + ": " + touch.what + " on stream " + std::to_string(touch.stream);
  return text;
}

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
  /// Null: the contents are good.
  [[nodiscard]] std::shared_ptr<ProgramCause> poison() const { return storage ? storage->poison() : nullptr; }
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
  [[nodiscard]] bool is_whole_allocation() const noexcept {
    return region->storage && size() == region->storage->size();
  }
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
