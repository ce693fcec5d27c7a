#pragma once

#include <coxswain/runtime/base/access.hpp>
#include <coxswain/runtime/base/execution_mode.hpp>
#include <coxswain/runtime/launch/cube_count.hpp>
#include <coxswain/runtime/launch/cube_dim.hpp>
#include <coxswain/runtime/launch/scalar_types.hpp>
#include <coxswain/servers/host/kernel/buffer_view.hpp>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

namespace cox {

/// One cube of a launch, with its buffers and scalars, as a host kernel receives it. Valid only during the call.
class KernelContext {
 public:
  struct Buffer {
    std::byte* data = nullptr;
    std::size_t size = 0;  ///< bytes
    Access access = Access::Write;
  };

  KernelContext(CubeDim dim, CubeCount::Static count, std::span<const Buffer> buffers,
                std::span<const std::uint64_t> words, ExecutionMode mode, ScalarTypes types = {}) noexcept
      : dim_(dim), count_(count), buffers_(buffers), words_(words), types_(types), mode_(mode) {}

  /// The index of this cube in the grid.
  [[nodiscard]] const std::array<std::uint32_t, 3>& cube_index() const noexcept { return index_; }
  /// The number of this cube; x varies fastest.
  [[nodiscard]] std::uint64_t linear_cube_index() const noexcept {
    return index_[0] + std::uint64_t{count_.x} * (index_[1] + std::uint64_t{count_.y} * index_[2]);
  }
  [[nodiscard]] const CubeCount::Static& cube_count() const noexcept { return count_; }
  [[nodiscard]] const CubeDim& cube_dim() const noexcept { return dim_; }
  /// The number of this cube's first unit among the units of all cubes. The cube has this unit and the following
  /// unit_count() - 1.
  [[nodiscard]] std::uint64_t first_unit() const noexcept { return linear_cube_index() * dim_.unit_count(); }
  /// Calls f(unit) for each unit of this cube, with its number among the units of all cubes.
  template <class F>
  void for_each_unit(F&& f) const {
    const std::uint64_t first = first_unit();
    const std::uint64_t count = dim_.unit_count();
    for (std::uint64_t unit = first; unit < first + count; ++unit) f(unit);
  }

  [[nodiscard]] std::size_t buffer_count() const noexcept { return buffers_.size(); }
  /// Buffer `i` as elements of T: to read and write, or only to read if T is const. Throws LaunchError ArgumentCount if
  /// there is no such buffer, ArgumentType if the buffer is not a whole number of aligned T, or if it was passed as
  /// read-only and T is not const.
  template <class T>
    requires std::is_trivially_copyable_v<T>
  [[nodiscard]] BufferView<T> buffer(std::size_t i) const {
    const Buffer& given = require_buffer(i, sizeof(T), alignof(T), std::is_const_v<T>);
    return {reinterpret_cast<T*>(given.data), given.size / sizeof(T), i, mode_ != ExecutionMode::Unchecked};
  }

  /// The number of words of all scalars.
  [[nodiscard]] std::size_t scalar_count() const noexcept { return words_.size(); }
  /// The scalar that begins at word `i`, as passed to KernelArguments::with_scalar<T>: scalar `i`, unless an earlier
  /// one has more than 8 bytes and so takes several words. Throws LaunchError ArgumentCount if there is none,
  /// ArgumentType if it was passed as another type, as far as ScalarTypes records that: the number 1, an int, cannot be
  /// read as std::uint32_t. Words of with_info may be read as any type.
  template <class T>
    requires std::is_trivially_copyable_v<T>
  [[nodiscard]] T scalar(std::size_t i) const {
    constexpr std::size_t words = scalar_words<T>;
    if (words_.size() < words || i > words_.size() - words || !types_.match(i, scalar_type_of<T>, words)) [[unlikely]]
      refuse_scalar(i, scalar_type_of<T>, words);
    std::array<std::byte, sizeof(T)> bytes;
    std::memcpy(bytes.data(), words_.data() + i, sizeof(T));
    return std::bit_cast<T>(bytes);
  }
  /// All words of the metadata.
  [[nodiscard]] std::span<const std::uint64_t> words() const noexcept { return words_; }

  /// Called by the server between cubes.
  void set_cube_index(const std::array<std::uint32_t, 3>& index) noexcept { index_ = index; }

 private:
  [[nodiscard]] const Buffer& require_buffer(std::size_t i, std::size_t size, std::size_t alignment, bool reads) const;
  [[noreturn]] void refuse_scalar(std::size_t i, ScalarType type, std::size_t words) const;

  std::array<std::uint32_t, 3> index_{};
  CubeDim dim_;
  CubeCount::Static count_;
  std::span<const Buffer> buffers_;
  std::span<const std::uint64_t> words_;
  ScalarTypes types_;
  ExecutionMode mode_;
};

}  // namespace cox
