#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace train {

/// Eight floats. The compiler maps them to the vector registers of the target, whatever their width.
using Lanes = float __attribute__((vector_size(32)));
inline constexpr std::size_t lanes = 8;

inline Lanes load(const float* from) {
  Lanes value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}
inline void store(float* to, const Lanes& value) { std::memcpy(to, &value, sizeof(value)); }

inline float sum_of(const Lanes& x) { return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7])); }

/// Sums in a fixed order, so that equal inputs give equal bits. `f(i)` returns eight values from element i on,
/// `rest(i)` returns one.
template <class Eight, class One>
float fixed_order_sum(std::size_t count, const Eight& f, const One& rest) {
  Lanes sum{};
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) sum += f(i);
  float tail = 0;
  for (; i < count; ++i) tail += rest(i);
  return sum_of(sum) + tail;
}

inline float sum(const float* x, std::size_t count) {
  return fixed_order_sum(count, [=](std::size_t i) { return load(x + i); }, [=](std::size_t i) { return x[i]; });
}
inline float dot(const float* x, const float* y, std::size_t count) {
  return fixed_order_sum(
      count, [=](std::size_t i) { return load(x + i) * load(y + i); }, [=](std::size_t i) { return x[i] * y[i]; });
}
/// Sum of (x[i] - mean)^2.
inline float squared_distance(const float* x, float mean, std::size_t count) {
  return fixed_order_sum(
      count,
      [=](std::size_t i) {
        const Lanes d = load(x + i) - mean;
        return d * d;
      },
      [=](std::size_t i) { return (x[i] - mean) * (x[i] - mean); });
}

/// e^x with a relative error of about 2e-7, without a library call, so that loops over it are vectorised. Results below
/// e^-87 are about 1e-38; x must be at most 88.
inline float fast_exp(float x) {
  constexpr float round = 12582912.0F;  // 1.5 * 2^23: adding it rounds to a whole number
  x = x < -87.0F ? -87.0F : x;
  const float n = (x * 1.44269504F + round) - round;
  const float r = (x - n * 0.693359375F) - n * -2.12194440e-4F;
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * r * r + r + 1.0F;
  return p * std::bit_cast<float>((static_cast<std::int32_t>(n) + 127) << 23);
}

inline float fast_tanh(float x) {
  x = x < -9.0F ? -9.0F : x;
  x = x > 9.0F ? 9.0F : x;
  return 1.0F - 2.0F / (fast_exp(2.0F * x) + 1.0F);
}

}  // namespace train
