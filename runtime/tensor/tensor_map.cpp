#include <coxswain/runtime/tensor/tensor_map.hpp>

#include <coxswain/runtime/error/server_error.hpp>

#include <algorithm>
#include <cstdint>
#include <string>

namespace cox {
namespace {

constexpr std::uint64_t max_extent = std::uint64_t{1} << 32U;
constexpr std::uint64_t max_stride = (std::uint64_t{1} << 40U) - 1;

/// Validates one descriptor; each check throws where it finds an invalid value.
class Validation {
 public:
  Validation(const TensorMapDescriptor& map, std::source_location site) : map_(map), site_(site) {}

  void run(std::size_t bytes) const {
    rank();
    for (std::size_t i = 0; i < map_.shape.size(); ++i)
      range<std::uint64_t>("the extent of " + dimension(i), map_.shape[i], 1, max_extent);
    strides();
    element_strides();
    if (const auto* const tiled = std::get_if<TensorMapTiled>(&map_.format))
      this->tiled(*tiled);
    else
      im2col(std::get<TensorMapIm2col>(map_.format));
    if (map_.interleave == TensorMapInterleave::Bytes32 && map_.swizzle != TensorMapSwizzle::Bytes32)
      fail("an interleave of 32 bytes needs a swizzle of 32 bytes");
    if (map_.fill == TensorMapFill::Nan && !facts(map_.element).is_float)
      fail("elements of type " + std::string(facts(map_.element).name) + " cannot be filled with NaN");
    within(bytes);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw ServerError(ServerError::Kind::Validation, "tensor map: " + what, site_);
  }
  template <class T>
  void range(const std::string& what, T value, T minimum, T maximum) const {
    if (value < minimum || value > maximum)
      fail(what + " is " + std::to_string(value) + ", and must be from " + std::to_string(minimum) + " to " +
           std::to_string(maximum));
  }
  void count(const std::string& what, std::size_t given, std::size_t needed) const {
    if (given != needed)
      fail(std::to_string(given) + " " + what + " are given, but rank " + std::to_string(map_.shape.size()) +
           " needs " + std::to_string(needed));
  }
  static std::string dimension(std::size_t i) { return "dimension " + std::to_string(i); }

  void rank() const {
    const bool thick =
        map_.interleave != TensorMapInterleave::None || std::holds_alternative<TensorMapIm2col>(map_.format);
    range<std::size_t>(thick ? "the rank, interleaved or im2col," : "the rank", map_.shape.size(), thick ? 3 : 1, 5);
  }
  void strides() const {
    count("strides", map_.strides.size(), map_.shape.size() - 1);
    const std::uint64_t unit = required_alignment(map_);
    for (std::size_t i = 0; i < map_.strides.size(); ++i) {
      if (map_.strides[i] % unit != 0)
        fail("the stride of " + dimension(i) + " is " + std::to_string(map_.strides[i]) +
             " B, and must be a multiple of " + std::to_string(unit) + " B");
      range<std::uint64_t>("the stride in bytes of " + dimension(i), map_.strides[i], 0, max_stride);
    }
  }
  void element_strides() const {
    if (map_.element_strides.empty()) return;
    count("element strides", map_.element_strides.size(), map_.shape.size());
    for (std::size_t i = 0; i < map_.element_strides.size(); ++i)
      range<std::uint32_t>("the element stride of " + dimension(i), map_.element_strides[i], 1, 8);
  }
  void tiled(const TensorMapTiled& format) const {
    count("tile extents", format.tile.size(), map_.shape.size());
    for (std::size_t i = 0; i < format.tile.size(); ++i)
      range<std::uint32_t>("the tile's extent along " + dimension(i), format.tile[i], 1, 256);
    const std::size_t row = format.tile.back() * facts(map_.element).size;
    if (map_.interleave == TensorMapInterleave::None && row % 16 != 0)
      fail("a row of the tile has " + std::to_string(row) + " B, and must have a multiple of 16 B");
    swizzled(row);
  }
  void im2col(const TensorMapIm2col& format) const {
    const std::size_t spatial = map_.shape.size() - 2;
    count("lower corner offsets", format.lower_corner.size(), spatial);
    count("upper corner offsets", format.upper_corner.size(), spatial);
    const std::int32_t reach = spatial == 1 ? 32768 : spatial == 2 ? 128 : 16;
    for (std::size_t i = 0; i < spatial; ++i) {
      range("the lower corner along " + dimension(i + 1), format.lower_corner[i], -reach, reach - 1);
      range("the upper corner along " + dimension(i + 1), format.upper_corner[i], -reach, reach - 1);
      const auto extent = static_cast<std::int64_t>(map_.shape[i + 1]);
      if (extent + format.upper_corner[i] - format.lower_corner[i] <= 0)
        fail("the box of pixels is empty along " + dimension(i + 1));
    }
    range<std::uint32_t>("channels_per_pixel", format.channels_per_pixel, 1, 256);
    range<std::uint32_t>("pixels_per_column", format.pixels_per_column, 1, 1024);
    swizzled(format.channels_per_pixel * facts(map_.element).size);
  }
  void swizzled(std::size_t row) const {
    if (map_.interleave != TensorMapInterleave::None || map_.swizzle == TensorMapSwizzle::None) return;
    const std::size_t most = map_.swizzle == TensorMapSwizzle::Bytes32   ? 32
                             : map_.swizzle == TensorMapSwizzle::Bytes64 ? 64
                                                                         : 128;
    if (row > most)
      fail("a row of the box has " + std::to_string(row) + " B, and its swizzle takes at most " + std::to_string(most) +
           " B");
  }
  /// Precondition: strides and extents are in range. `reach` is then below 5 * 2^32 * 2^40 and does not overflow.
  void within(std::size_t bytes) const {
    if (map_.interleave != TensorMapInterleave::None) return;  // the bytes of an element depend on its slice
    unsigned __int128 reach = static_cast<unsigned __int128>(map_.shape.back()) * facts(map_.element).size;
    for (std::size_t i = 0; i < map_.strides.size(); ++i)
      reach += static_cast<unsigned __int128>(map_.shape[i] - 1) * map_.strides[i];
    if (reach > bytes)
      fail("the tensor reaches beyond its memory of " + std::to_string(bytes) + " B" +
           (reach <= UINT64_MAX ? ": it ends at " + std::to_string(static_cast<std::uint64_t>(reach)) + " B" : ""));
  }

  const TensorMapDescriptor& map_;
  std::source_location site_;
};

}  // namespace

void validate_tensor_map(const TensorMapDescriptor& descriptor, std::size_t bytes, std::source_location site) {
  Validation(descriptor, site).run(bytes);
}

}  // namespace cox
