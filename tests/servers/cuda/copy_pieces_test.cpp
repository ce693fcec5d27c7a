#include <coxswain/servers/cuda/copy/copy_pieces.hpp>

#include <coxswain/tests/support/catch.hpp>

#include <cstddef>
#include <vector>

using cox::CopyPlan;
using cox::detail::append_pieces;
using cox::detail::CopyPiece;

namespace {

/// Every byte of the host side once, at the place that the plan says, in pieces of at most `chunk`.
void require_whole(const CopyPlan& plan, std::size_t chunk) {
  std::vector<CopyPiece> pieces;
  append_pieces(pieces, 3, plan, chunk);
  std::vector<std::size_t> device_of(plan.size(), ~std::size_t{0});
  for (const CopyPiece& piece : pieces) {
    REQUIRE(piece.part == 3);
    REQUIRE(piece.size() <= chunk);
    for (std::size_t row = 0; row < piece.rows; ++row)
      for (std::size_t i = 0; i < piece.row_bytes; ++i) {
        std::size_t& device = device_of.at(piece.host_offset + row * piece.row_bytes + i);
        REQUIRE(device == ~std::size_t{0});
        device = piece.device_offset + row * piece.pitch + i;
      }
  }
  for (std::size_t i = 0; i < plan.size(); ++i)
    REQUIRE(device_of[i] == i / plan.row_bytes * plan.pitch + i % plan.row_bytes);
}

}  // namespace

TEST_CASE("A copy in pieces is the whole copy, whatever its rows and the size of a piece") {
  for (const std::size_t chunk : {1U, 7U, 10U, 64U, 1000U})
    for (const CopyPlan& plan :
         {CopyPlan{1, 100, 100}, CopyPlan{10, 10, 10}, CopyPlan{10, 10, 16}, CopyPlan{3, 33, 64}})
      require_whole(plan, chunk);
}

TEST_CASE("An empty copy has no pieces") {
  std::vector<CopyPiece> pieces;
  append_pieces(pieces, 0, CopyPlan{0, 8, 8}, 16);
  append_pieces(pieces, 0, CopyPlan{4, 0, 8}, 16);
  REQUIRE(pieces.empty());
}
