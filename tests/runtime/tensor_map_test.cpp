#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/error/server_error.hpp>
#include <coxswain/runtime/tensor/tensor_map.hpp>

#include <cstddef>
#include <string>

using namespace cox;
using cox::test::message_of;

namespace {

constexpr std::size_t enough = std::size_t{1} << 40U;

TensorMapDescriptor tiled() {
  return {.element = TensorMapElement::F32,
          .shape = {8, 16, 64},
          .strides = {4096, 256},
          .format = TensorMapTiled{{1, 16, 32}}};
}

TensorMapDescriptor im2col() {
  return {.element = TensorMapElement::F16,
          .shape = {2, 10, 12, 64},
          .strides = {15360, 1536, 128},
          .format = TensorMapIm2col{{-1, -1}, {1, 1}, 64, 128}};
}

/// What is wrong with the map once `change` has been made; empty if nothing.
template <class Change>
std::string refusal(TensorMapDescriptor map, Change&& change, std::size_t bytes = enough) {
  change(map);
  try {
    validate_tensor_map(map, bytes);
  } catch (const ServerError& error) {
    CHECK(error.kind() == ServerError::Kind::Validation);
    return error.what();
  }
  return {};
}

std::string of_tiled(void (*change)(TensorMapDescriptor&)) { return refusal(tiled(), change); }
std::string of_im2col(void (*change)(TensorMapDescriptor&)) { return refusal(im2col(), change); }
TensorMapIm2col& columns(TensorMapDescriptor& map) { return std::get<TensorMapIm2col>(map.format); }
TensorMapTiled& tile(TensorMapDescriptor& map) { return std::get<TensorMapTiled>(map.format); }

using Map = TensorMapDescriptor;

}  // namespace

TEST_CASE("Tensor maps that devices take are valid") {
  CHECK(of_tiled([](Map&) {}).empty());
  CHECK(of_im2col([](Map&) {}).empty());
  CHECK(of_tiled([](Map& map) {
          map.shape = {1024};
          map.strides = {};
          map.format = TensorMapTiled{{256}};
        }).empty());
  CHECK(of_tiled([](Map& map) {
          map.swizzle = TensorMapSwizzle::Bytes128;
          map.fill = TensorMapFill::Nan;
          map.element_strides = {1, 2, 8};
        }).empty());
}

TEST_CASE("The rank of a tensor map is 1 to 5, interleaved or im2col 3 to 5") {
  CHECK(of_tiled([](Map& map) { map.shape = {}; }) == "tensor map: the rank is 0, and must be from 1 to 5");
  CHECK(of_tiled([](Map& map) { map.shape = {1, 1, 1, 1, 1, 1}; }) ==
        "tensor map: the rank is 6, and must be from 1 to 5");
  CHECK(of_im2col([](Map& map) { map.shape = {1, 1}; }) ==
        "tensor map: the rank, interleaved or im2col, is 2, and must be from 3 to 5");
}

TEST_CASE("Extents and strides of a tensor map are in range, and there are as many as the rank has") {
  CHECK(of_tiled([](Map& map) { map.shape[1] = 0; }) ==
        "tensor map: the extent of dimension 1 is 0, and must be from 1 to 4294967296");
  CHECK(of_tiled([](Map& map) { map.strides[1] = 264; }) ==
        "tensor map: the stride of dimension 1 is 264 B, and must be a multiple of 16 B");
  CHECK(of_tiled([](Map& map) { map.strides[0] = std::uint64_t{1} << 40U; }) ==
        "tensor map: the stride in bytes of dimension 0 is 1099511627776, and must be from 0 to 1099511627775");
  CHECK(of_tiled([](Map& map) { map.strides.pop_back(); }) == "tensor map: 1 strides are given, but rank 3 needs 2");
  CHECK(of_tiled([](Map& map) { map.element_strides = {1, 9, 1}; }) ==
        "tensor map: the element stride of dimension 1 is 9, and must be from 1 to 8");
  CHECK(of_tiled([](Map& map) { map.element_strides = {1}; }) ==
        "tensor map: 1 element strides are given, but rank 3 needs 3");
}

TEST_CASE("The tile of a tensor map has 1 to 256 elements each way and rows of whole chunks") {
  CHECK(of_tiled([](Map& map) { tile(map).tile[1] = 257; }) ==
        "tensor map: the tile's extent along dimension 1 is 257, and must be from 1 to 256");
  CHECK(of_tiled([](Map& map) { tile(map).tile[1] = 0; }) ==
        "tensor map: the tile's extent along dimension 1 is 0, and must be from 1 to 256");
  CHECK(of_tiled([](Map& map) { tile(map).tile.pop_back(); }) ==
        "tensor map: 2 tile extents are given, but rank 3 needs 3");
  CHECK(of_tiled([](Map& map) { tile(map).tile[2] = 3; }) ==
        "tensor map: a row of the tile has 12 B, and must have a multiple of 16 B");
  CHECK(of_tiled([](Map& map) { map.swizzle = TensorMapSwizzle::Bytes64; }) ==
        "tensor map: a row of the box has 128 B, and its swizzle takes at most 64 B");
}

TEST_CASE("The box of pixels of an im2col tensor map is in the range of its rank and not empty") {
  CHECK(of_im2col([](Map& map) { columns(map).lower_corner[0] = -129; }) ==
        "tensor map: the lower corner along dimension 1 is -129, and must be from -128 to 127");
  CHECK(of_im2col([](Map& map) { columns(map).upper_corner[1] = 128; }) ==
        "tensor map: the upper corner along dimension 2 is 128, and must be from -128 to 127");
  CHECK(of_im2col([](Map& map) { columns(map).upper_corner[0] = -11; }) ==
        "tensor map: the box of pixels is empty along dimension 1");
  CHECK(of_im2col([](Map& map) { columns(map).lower_corner.pop_back(); }) ==
        "tensor map: 1 lower corner offsets are given, but rank 4 needs 2");
  CHECK(of_im2col([](Map& map) { columns(map).channels_per_pixel = 257; }) ==
        "tensor map: channels_per_pixel is 257, and must be from 1 to 256");
  CHECK(of_im2col([](Map& map) { columns(map).pixels_per_column = 1025; }) ==
        "tensor map: pixels_per_column is 1025, and must be from 1 to 1024");
  CHECK(of_im2col([](Map& map) {
          map.shape = {2, 40'000, 64};
          map.strides = {5'120'000, 128};
          columns(map).lower_corner = {-32768};
          columns(map).upper_corner = {32767};
        }).empty());
  CHECK(of_im2col([](Map& map) {
          map.shape = {2, 4, 10, 12, 64};
          map.strides = {61440, 15360, 1536, 128};
          columns(map).lower_corner = {0, -17, 0};
          columns(map).upper_corner = {0, 0, 0};
        }) == "tensor map: the lower corner along dimension 2 is -17, and must be from -16 to 15");
}

TEST_CASE("Interleave, swizzle and fill of a tensor map go together") {
  CHECK(of_tiled([](Map& map) { map.interleave = TensorMapInterleave::Bytes32; }) ==
        "tensor map: an interleave of 32 bytes needs a swizzle of 32 bytes");
  CHECK(of_tiled([](Map& map) {
          map.interleave = TensorMapInterleave::Bytes32;
          map.strides[1] = 272;
        }) == "tensor map: the stride of dimension 1 is 272 B, and must be a multiple of 32 B");
  CHECK(of_tiled([](Map& map) {
          map.element = TensorMapElement::U32;
          map.fill = TensorMapFill::Nan;
        }) == "tensor map: elements of type u32 cannot be filled with NaN");
  Map interleaved = tiled();
  CHECK(required_alignment(interleaved) == 16);
  interleaved.interleave = TensorMapInterleave::Bytes32;
  CHECK(required_alignment(interleaved) == 32);
}

TEST_CASE("A tensor map stays within its memory") {
  CHECK(refusal(tiled(), [](Map&) {}, 8 * 4096).empty());
  CHECK(refusal(
            tiled(), [](Map&) {}, 8 * 4096 - 1) ==
        "tensor map: the tensor reaches beyond its memory of 32767 B: it ends at 32768 B");
  CHECK(refusal(
            tiled(),
            [](Map& map) {
              map.shape[0] = std::uint64_t{1} << 32U;
              map.strides[0] = (std::uint64_t{1} << 40U) - 16;
            },
            64) == "tensor map: the tensor reaches beyond its memory of 64 B");
}

TEST_CASE("The elements of tensor maps are in the order of their type") {
  for (std::size_t i = 0; i < tensor_map_elements.size(); ++i)
    CHECK(static_cast<std::size_t>(tensor_map_elements[i].element) == i);
}
