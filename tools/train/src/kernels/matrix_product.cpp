#include <kernels/kernel_list.hpp>
#include <kernels/matrix_product.hpp>
#include <kernels/vector_math.hpp>

#include <array>
#include <vector>

// The usual scheme of blocked products (Goto and van de Geijn, 2008): blocks of both operands are copied ("packed")
// into the order in which the innermost loop reads them, which keeps a tile of c in registers.

namespace train {
namespace {

constexpr std::size_t tile_rows = 6;
constexpr std::size_t tile_columns = 2 * lanes;
constexpr std::size_t block_rows = 16 * tile_rows;  // of a: block_rows x block_depth stays in the L2 cache
constexpr std::size_t block_depth = 256;
constexpr std::size_t block_columns = 32 * tile_columns;  // of b

using Tile = std::array<std::array<Lanes, 2>, tile_rows>;

// Both operands packed: a in columns of tile_rows elements, b in rows of tile_columns elements.
[[gnu::always_inline]] inline void multiply_tile(std::size_t depth, const float* a, const float* b, Tile& tile) {
  Tile sum{};
  for (std::size_t k = 0; k < depth; ++k, a += tile_rows, b += tile_columns) {
    const Lanes b0 = load(b);
    const Lanes b1 = load(b + lanes);
    for (std::size_t i = 0; i < tile_rows; ++i) {
      sum[i][0] += a[i] * b0;
      sum[i][1] += a[i] * b1;
    }
  }
  tile = sum;
}

void store_tile(const Tile& tile, float* c, std::size_t stride, std::size_t rows, std::size_t columns, bool add) {
  if (columns == tile_columns) {
    for (std::size_t i = 0; i < rows; ++i)
      for (std::size_t half = 0; half < 2; ++half) {
        float* const to = c + i * stride + half * lanes;
        store(to, add ? load(to) + tile[i][half] : tile[i][half]);
      }
    return;
  }
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < columns; ++j) {
      const float value = tile[i][j / lanes][j % lanes];
      float& to = c[i * stride + j];
      to = add ? to + value : value;
    }
}

// Packs `outer` x `depth` elements into groups of `group`, each in the order of depth; the last group is padded with
// zeros. Element (o, d) is at data[o * outer_step + d * depth_step].
void pack(const float* data, std::size_t outer, std::size_t depth, std::size_t outer_step, std::size_t depth_step,
          std::size_t group, float* to) {
  for (std::size_t first = 0; first < outer; first += group) {
    const std::size_t count = std::min(group, outer - first);
    const float* const from = data + first * outer_step;
    for (std::size_t d = 0; d < depth; ++d, to += group) {
      for (std::size_t o = 0; o < count; ++o) to[o] = from[o * outer_step + d * depth_step];
      for (std::size_t o = count; o < group; ++o) to[o] = 0;
    }
  }
}

struct PackedBlocks {
  std::vector<float> a = std::vector<float>(block_rows * block_depth);
  std::vector<float> b = std::vector<float>(block_columns * block_depth);
};

}  // namespace

void matrix_product(std::size_t m, std::size_t n, std::size_t k, MatrixView a, MatrixView b, float* c,
                    std::size_t c_stride, bool accumulate) {
  thread_local PackedBlocks packed;
  const std::size_t a_row = a.transposed ? 1 : a.stride;
  const std::size_t a_depth = a.transposed ? a.stride : 1;
  const std::size_t b_column = b.transposed ? b.stride : 1;
  const std::size_t b_depth = b.transposed ? 1 : b.stride;
  for (std::size_t k0 = 0; k0 < k; k0 += block_depth) {
    const std::size_t depth = std::min(block_depth, k - k0);
    const bool add = accumulate || k0 > 0;
    for (std::size_t j0 = 0; j0 < n; j0 += block_columns) {
      const std::size_t columns = std::min(block_columns, n - j0);
      pack(b.data + j0 * b_column + k0 * b_depth, columns, depth, b_column, b_depth, tile_columns, packed.b.data());
      for (std::size_t i0 = 0; i0 < m; i0 += block_rows) {
        const std::size_t rows = std::min(block_rows, m - i0);
        pack(a.data + i0 * a_row + k0 * a_depth, rows, depth, a_row, a_depth, tile_rows, packed.a.data());
        for (std::size_t j = 0; j < columns; j += tile_columns)
          for (std::size_t i = 0; i < rows; i += tile_rows) {
            Tile tile;
            multiply_tile(depth, packed.a.data() + i * depth, packed.b.data() + j * depth, tile);
            store_tile(tile, c + (i0 + i) * c_stride + j0 + j, c_stride, std::min(tile_rows, rows - i),
                       std::min(tile_columns, columns - j), add);
          }
      }
    }
  }
}

namespace host {

// out [batch, m, n] = a b, or out += a b. Buffers: out, a, b. Scalars: m, n, k, a transposed, b transposed, accumulate,
// batch.
void matrix_product(const cox::KernelContext& context) {
  const Arguments args(context);
  const std::size_t m = args.size(0);
  const std::size_t n = args.size(1);
  const std::size_t k = args.size(2);
  const bool a_transposed = args.flag(3);
  const bool b_transposed = args.flag(4);
  const std::size_t batch = args.size(6);
  float* const out = args.out(0, batch * m * n);
  const float* const a = args.in(1, batch * m * k);
  const float* const b = args.in(2, batch * k * n);
  for (std::size_t i = 0; i < batch; ++i)
    train::matrix_product(m, n, k, {a + i * m * k, a_transposed ? m : k, a_transposed},
                          {b + i * k * n, b_transposed ? k : n, b_transposed}, out + i * m * n, n, args.flag(5));
}

}  // namespace host
}  // namespace train
