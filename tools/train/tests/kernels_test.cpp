// The blocked matrix product against the plain one, for shapes around the sizes of its tiles and blocks; the fast
// exponential and tanh against those of the C++ library.

#include <data/random.hpp>
#include <kernels/matrix_product.hpp>
#include <kernels/vector_math.hpp>

#include <require.hpp>

#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

namespace {

std::vector<float> random_values(std::size_t count, train::Random& random) {
  std::vector<float> values(count);
  for (float& value : values) value = random.normal();
  return values;
}

void check_product(std::size_t m, std::size_t n, std::size_t k, bool a_transposed, bool b_transposed, bool accumulate) {
  train::Random random(m * 1000003 + n * 1009 + k, "kernels_test");
  // Rows of the operands are longer than they are used.
  const std::size_t a_stride = (a_transposed ? m : k) + 3;
  const std::size_t b_stride = (b_transposed ? k : n) + 1;
  const std::size_t c_stride = n + 2;
  const auto a = random_values((a_transposed ? k : m) * a_stride, random);
  const auto b = random_values((b_transposed ? n : k) * b_stride, random);
  const auto before = random_values(m * c_stride, random);
  auto c = before;
  train::matrix_product(m, n, k, {a.data(), a_stride, a_transposed}, {b.data(), b_stride, b_transposed}, c.data(),
                        c_stride, accumulate);
  for (std::size_t i = 0; i < m; ++i) {
    for (std::size_t j = 0; j < n; ++j) {
      double sum = accumulate ? static_cast<double>(before[i * c_stride + j]) : 0.0;
      for (std::size_t d = 0; d < k; ++d)
        sum += static_cast<double>(a_transposed ? a[d * a_stride + i] : a[i * a_stride + d]) *
               static_cast<double>(b_transposed ? b[j * b_stride + d] : b[d * b_stride + j]);
      const double error = std::abs(sum - static_cast<double>(c[i * c_stride + j]));
      require(error < 1e-5 * static_cast<double>(k + 10), "an element of the product is wrong");
    }
    for (std::size_t j = n; j < c_stride; ++j)
      require(c[i * c_stride + j] == before[i * c_stride + j], "an element beyond the row was written");
  }
}

}  // namespace

int main() {
  for (const std::size_t m : {1U, 5U, 6U, 7U, 97U})
    for (const std::size_t n : {1U, 15U, 16U, 17U, 513U})
      for (const std::size_t k : {1U, 3U, 255U, 257U})
        for (int form = 0; form < 8; ++form) check_product(m, n, k, (form & 1) != 0, (form & 2) != 0, (form & 4) != 0);
  for (float x = -80.0F; x < 80.0F; x += 0.013F) {
    const double exact = std::exp(static_cast<double>(x));
    require(std::abs(static_cast<double>(train::fast_exp(x)) - exact) < 4e-7 * exact, "fast_exp");
    require(std::abs(static_cast<double>(train::fast_tanh(x)) - std::tanh(static_cast<double>(x))) < 4e-7, "fast_tanh");
  }
  require(train::fast_exp(-1000.0F) >= 0 && train::fast_exp(-1000.0F) < 1e-37F, "fast_exp of a very small number");
  std::puts("ok");
  return 0;
}
