// Kernels that compute each element by itself. Blocks of 256 threads, each with 16 bytes of activations.

struct Matrix {
  Count rows;
  Count width;
};

// out [rows, width] += bias [width].
KERNEL void add_bias(Element* out, const Element* bias, Matrix shape) {
  const unsigned width = shape.width;
  if (width % lanes == 0) {
    for_elements(static_cast<Size>(shape.rows) * width, [&](Size i, auto vector) {
      float x[width_of(vector)];
      float b[width_of(vector)];
      vector.load(out + i, x);
      vector.load(bias + static_cast<unsigned>(i) % width, b);
      for (int j = 0; j < width_of(vector); ++j) x[j] += b[j];
      vector.store(out + i, x);
    });
    return;
  }
  const Size count = static_cast<Size>(shape.rows) * width;
  const Size first = global_thread() * lanes;
  for (Size i = first; i < first + lanes && i < count; ++i)
    round_to(out + i, to_float(out[i]) + to_float(bias[i % width]));
}

struct Elements {
  Count count;
};

constexpr float root_two_over_pi = 0.7978845608F;
constexpr float cubic = 0.044715F;

// tanh(x) with a relative error of a few units in the last place of 1.
__device__ inline float quick_tanh(float x) {
  x = x < -9.0F ? -9.0F : x > 9.0F ? 9.0F : x;
  return 1.0F - 2.0F / (__expf(2.0F * x) + 1.0F);
}

// GELU in the approximation by tanh.
KERNEL void gelu_forward(Element* out, const Element* x, Elements elements) {
  for_elements(elements.count, [&](Size i, auto vector) {
    float v[width_of(vector)];
    vector.load(x + i, v);
    for (float& value : v) {
      const float t = quick_tanh(root_two_over_pi * (value + cubic * value * value * value));
      value = 0.5F * value * (1.0F + t);
    }
    vector.store(out + i, v);
  });
}

KERNEL void gelu_backward(Element* d_x, const Element* d_out, const Element* x, Elements elements) {
  for_elements(elements.count, [&](Size i, auto vector) {
    float d[width_of(vector)];
    float v[width_of(vector)];
    vector.load(d_out + i, d);
    vector.load(x + i, v);
    for (int j = 0; j < width_of(vector); ++j) {
      const float t = quick_tanh(root_two_over_pi * (v[j] + cubic * v[j] * v[j] * v[j]));
      const float slope = root_two_over_pi * (1.0F + 3.0F * cubic * v[j] * v[j]);
      d[j] *= 0.5F * (1.0F + t) + 0.5F * v[j] * (1.0F - t * t) * slope;
    }
    vector.store(d_x + i, d);
  });
}

// out = a + b.
KERNEL void add(Element* out, const Element* a, const Element* b, Elements elements) {
  for_elements(elements.count, [&](Size i, auto vector) {
    float x[width_of(vector)];
    float y[width_of(vector)];
    vector.load(a + i, x);
    vector.load(b + i, y);
    for (int j = 0; j < width_of(vector); ++j) x[j] += y[j];
    vector.store(out + i, x);
  });
}

KERNEL void zero(float* out, Elements elements) {
  for_elements(elements.count, [&](Size i, auto vector) {
    const float zeros[width_of(vector)] = {};
    vector.store(out + i, zeros);
  });
}

// out = x.
KERNEL void copy(float* out, const float* x, Elements elements) {
  for_elements(elements.count, [&](Size i, auto vector) {
    float v[width_of(vector)];
    vector.load(x + i, v);
    vector.store(out + i, v);
  });
}

// out = x, rounded to the type of activations.
KERNEL void round_elements(Element* out, const float* x, Elements elements) {
  for_elements(elements.count, [&](Size i, auto vector) {
    float v[width_of(vector)];
    vector.load(x + i, v);
    vector.store(out + i, v);
  });
}
