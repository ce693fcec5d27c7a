#include <coxswain/servers/cuda/kernel/tensor_map_encoding.hpp>

#include <coxswain/runtime/error/launch_error.hpp>
#include <coxswain/servers/cuda/driver/cuda_try.hpp>

#include <algorithm>
#include <array>
#include <string>

namespace cox::detail {
namespace {

template <class Native, class Ours, std::size_t count>
constexpr Native native(const std::array<Native, count>& table, Ours value) {
  return table[static_cast<std::size_t>(value)];
}

constexpr std::array data_types{
    CU_TENSOR_MAP_DATA_TYPE_UINT8,       CU_TENSOR_MAP_DATA_TYPE_UINT16,      CU_TENSOR_MAP_DATA_TYPE_UINT32,
    CU_TENSOR_MAP_DATA_TYPE_INT32,       CU_TENSOR_MAP_DATA_TYPE_UINT64,      CU_TENSOR_MAP_DATA_TYPE_INT64,
    CU_TENSOR_MAP_DATA_TYPE_FLOAT16,     CU_TENSOR_MAP_DATA_TYPE_FLOAT32,     CU_TENSOR_MAP_DATA_TYPE_FLOAT64,
    CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,    CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ, CU_TENSOR_MAP_DATA_TYPE_TFLOAT32,
    CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ};
static_assert(data_types.size() == tensor_map_elements.size());

constexpr std::array interleaves{CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_INTERLEAVE_16B,
                                 CU_TENSOR_MAP_INTERLEAVE_32B};
static_assert(interleaves.size() == static_cast<std::size_t>(TensorMapInterleave::Bytes32) + 1);

constexpr std::array swizzles{CU_TENSOR_MAP_SWIZZLE_NONE,         CU_TENSOR_MAP_SWIZZLE_32B,
                              CU_TENSOR_MAP_SWIZZLE_64B,          CU_TENSOR_MAP_SWIZZLE_128B,
                              static_cast<CUtensorMapSwizzle>(4),  // swizzles with atoms: CUDA 12.8 has names for them
                              static_cast<CUtensorMapSwizzle>(5), static_cast<CUtensorMapSwizzle>(6)};
static_assert(swizzles.size() == static_cast<std::size_t>(TensorMapSwizzle::Bytes128Atom64) + 1);

constexpr std::array promotions{CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_L2_PROMOTION_L2_64B,
                                CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B};
static_assert(promotions.size() == static_cast<std::size_t>(TensorMapL2Promotion::Bytes256) + 1);

constexpr std::array fills{CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA};
static_assert(fills.size() == static_cast<std::size_t>(TensorMapFill::Nan) + 1);

/// The driver expects the innermost dimension first.
template <class To, class Values>
std::array<To, 5> innermost_first(const Values& values) {
  std::array<To, 5> result{};
  for (std::size_t i = 0; i < values.size(); ++i) result[i] = static_cast<To>(values[values.size() - 1 - i]);
  return result;
}

}  // namespace

CUtensorMap encode_tensor_map(const TensorMapDescriptor& descriptor, CUdeviceptr address, const Location& location,
                              std::source_location site) {
  if (const std::size_t alignment = required_alignment(descriptor); address % alignment != 0)
    throw LaunchError(LaunchError::Kind::ArgumentType,
                      "tensor map on " + location.to_string() + ": the memory begins " +
                          std::to_string(address % alignment) + " B after a multiple of " + std::to_string(alignment) +
                          " B, but must begin at such a multiple",
                      site);
  const auto rank = static_cast<cuuint32_t>(descriptor.shape.size());
  const auto shape = innermost_first<cuuint64_t>(descriptor.shape);
  const auto strides = innermost_first<cuuint64_t>(descriptor.strides);
  std::array<cuuint32_t, 5> steps{1, 1, 1, 1, 1};
  if (!descriptor.element_strides.empty()) steps = innermost_first<cuuint32_t>(descriptor.element_strides);
  const auto type = native(data_types, descriptor.element);
  const auto interleave = native(interleaves, descriptor.interleave);
  const auto swizzle = native(swizzles, descriptor.swizzle);
  const auto promotion = native(promotions, descriptor.l2_promotion);
  const auto fill = native(fills, descriptor.fill);
  void* const memory = reinterpret_cast<void*>(address);
  CUtensorMap map{};
  if (const auto* const tiled = std::get_if<TensorMapTiled>(&descriptor.format)) {
    const auto tile = innermost_first<cuuint32_t>(tiled->tile);
    COX_CUDA_TRY(tensor_map_tiled(&map, type, rank, memory, shape.data(), strides.data(), tile.data(), steps.data(),
                                  interleave, swizzle, promotion, fill));
    return map;
  }
  const auto& columns = std::get<TensorMapIm2col>(descriptor.format);
  const auto lower = innermost_first<int>(columns.lower_corner);
  const auto upper = innermost_first<int>(columns.upper_corner);
  COX_CUDA_TRY(tensor_map_im2col(&map, type, rank, memory, shape.data(), strides.data(), lower.data(), upper.data(),
                                 columns.channels_per_pixel, columns.pixels_per_column, steps.data(), interleave,
                                 swizzle, promotion, fill));
  return map;
}

}  // namespace cox::detail
