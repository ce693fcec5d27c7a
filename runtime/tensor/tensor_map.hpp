#pragma once

#include <coxswain/runtime/base/access.hpp>
#include <coxswain/runtime/base/small_vector.hpp>
#include <coxswain/runtime/handle/binding.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <string_view>
#include <variant>

namespace cox {

/// The element type of a tensor map. Ftz: denormal numbers are flushed to zero. 8-bit floats are U8.
enum class TensorMapElement : std::uint8_t { U8, U16, U32, I32, U64, I64, F16, F32, F64, BF16, F32Ftz, TF32, TF32Ftz };

struct TensorMapElementFacts {
  TensorMapElement element;
  std::string_view name;
  std::size_t size;  ///< bytes
  bool is_float;
};

inline constexpr std::array tensor_map_elements{
    TensorMapElementFacts{TensorMapElement::U8, "u8", 1, false},
    TensorMapElementFacts{TensorMapElement::U16, "u16", 2, false},
    TensorMapElementFacts{TensorMapElement::U32, "u32", 4, false},
    TensorMapElementFacts{TensorMapElement::I32, "i32", 4, false},
    TensorMapElementFacts{TensorMapElement::U64, "u64", 8, false},
    TensorMapElementFacts{TensorMapElement::I64, "i64", 8, false},
    TensorMapElementFacts{TensorMapElement::F16, "f16", 2, true},
    TensorMapElementFacts{TensorMapElement::F32, "f32", 4, true},
    TensorMapElementFacts{TensorMapElement::F64, "f64", 8, true},
    TensorMapElementFacts{TensorMapElement::BF16, "bf16", 2, true},
    TensorMapElementFacts{TensorMapElement::F32Ftz, "f32_ftz", 4, true},
    TensorMapElementFacts{TensorMapElement::TF32, "tf32", 4, true},
    TensorMapElementFacts{TensorMapElement::TF32Ftz, "tf32_ftz", 4, true},
};
static_assert(tensor_map_elements.size() == static_cast<std::size_t>(TensorMapElement::TF32Ftz) + 1);

[[nodiscard]] constexpr const TensorMapElementFacts& facts(TensorMapElement element) noexcept {
  return tensor_map_elements[static_cast<std::size_t>(element)];
}

/// Slices of channels that are adjacent in memory: NC/8HWC8 (16 bytes), NC/16HWC16 (32 bytes).
enum class TensorMapInterleave : std::uint8_t { None, Bytes16, Bytes32 };
/// How chunks of 16 bytes (Atom32, Atom64: 32, 64 bytes) are permuted over the banks of shared memory, within a span of
/// the given number of bytes.
enum class TensorMapSwizzle : std::uint8_t {
  None,
  Bytes32,
  Bytes64,
  Bytes128,
  Bytes128Atom32,
  Bytes128Atom32Flip8,
  Bytes128Atom64
};
/// How much the L2 cache fetches at a time.
enum class TensorMapL2Promotion : std::uint8_t { None, Bytes64, Bytes128, Bytes256 };
/// The value that is read outside the tensor. Nan: a special NaN that fused multiply-add treats as zero; floating-point
/// elements only.
enum class TensorMapFill : std::uint8_t { Zeros, Nan };

/// The kernel copies boxes of the tensor.
struct TensorMapTiled {
  SmallVector<std::uint32_t, 5> tile;  ///< elements of the box along each dimension, 1 to 256
};

/// The kernel copies columns of the im2col matrix of a convolution over the tensor. The dimensions of the tensor are N,
/// then one to three of D, H, W, then C.
struct TensorMapIm2col {
  SmallVector<std::int32_t, 3> lower_corner;  ///< of the pixel box, from the tensor's lower corner; order D, H, W
  SmallVector<std::int32_t, 3> upper_corner;  ///< of the pixel box, from the tensor's upper corner; order D, H, W
  std::uint32_t channels_per_pixel = 1;       ///< at most 256
  std::uint32_t pixels_per_column = 1;        ///< at most 1024
};

/// A tensor as it is described to the Tensor Memory Accelerator (TMA). All sequences are in the order of Shape:
/// outermost first.
struct TensorMapDescriptor {
  TensorMapElement element = TensorMapElement::F32;
  SmallVector<std::uint64_t, 5> shape{};    ///< elements, 1 to 5 dimensions
  SmallVector<std::uint64_t, 4> strides{};  ///< bytes, of every dimension but the last, whose elements are adjacent
  std::variant<TensorMapTiled, TensorMapIm2col> format{};
  SmallVector<std::uint32_t, 5> element_strides{};  ///< of every dimension, 1 to 8; empty: all 1
  TensorMapInterleave interleave = TensorMapInterleave::None;
  TensorMapSwizzle swizzle = TensorMapSwizzle::None;
  TensorMapL2Promotion l2_promotion = TensorMapL2Promotion::None;
  TensorMapFill fill = TensorMapFill::Zeros;
};

/// A tensor map as an argument of a kernel, and the memory that it describes.
struct TensorMapArgument {
  Binding binding;
  TensorMapDescriptor descriptor;
  Access access = Access::Write;
};

/// Throws ServerError Validation, with the invalid value and the allowed ones, unless `descriptor` is valid on devices
/// with tensor maps and the tensor stays within `bytes` bytes of memory.
void validate_tensor_map(const TensorMapDescriptor& descriptor, std::size_t bytes,
                         std::source_location site = std::source_location::current());

/// The alignment that the memory of the tensor map requires, in bytes.
[[nodiscard]] constexpr std::size_t required_alignment(const TensorMapDescriptor& descriptor) noexcept {
  return descriptor.interleave == TensorMapInterleave::Bytes32 ? 32 : 16;
}

}  // namespace cox
