// Layer norm: a warp for each row, 8 rows in a block of 256 threads.

struct Rows {
  Count rows;
  Count width;
};

constexpr int rows_of_block = 8;

template <int n>
__device__ inline void normalise_row(Element* to, float* mean_of_row, float* rstd_of_row, const Element* from,
                                     const Element* gain, const Element* bias, int width) {
  const int first = static_cast<int>(threadIdx.x) % warp_size * n;
  float sum = 0;
  for (int i = first; i < width; i += warp_size * n) {
    float x[n];
    Vector<n>::load(from + i, x);
    for (int j = 0; j < n; ++j) sum += x[j];
  }
  const float mean = warp_sum(sum) / static_cast<float>(width);
  float squares = 0;
  for (int i = first; i < width; i += warp_size * n) {
    float x[n];
    Vector<n>::load(from + i, x);
    for (int j = 0; j < n; ++j) squares += (x[j] - mean) * (x[j] - mean);
  }
  const float rstd = 1.0F / sqrtf(warp_sum(squares) / static_cast<float>(width) + 1e-5F);
  for (int i = first; i < width; i += warp_size * n) {
    float x[n];
    float g[n];
    float b[n];
    Vector<n>::load(from + i, x);
    Vector<n>::load(gain + i, g);
    Vector<n>::load(bias + i, b);
    for (int j = 0; j < n; ++j) x[j] = (x[j] - mean) * rstd * g[j] + b[j];
    Vector<n>::store(to + i, x);
  }
  if (threadIdx.x % warp_size == 0) {
    *mean_of_row = mean;
    *rstd_of_row = rstd;
  }
}

// out = (x - mean) * rstd * gain + bias for each row.
KERNEL void layer_norm_forward(Element* out, float* means, float* rstds, const Element* x, const Element* gain,
                               const Element* bias, Rows shape) {
  const Size row = static_cast<Size>(blockIdx.x) * rows_of_block + threadIdx.x / warp_size;
  if (row >= shape.rows) return;
  const int width = static_cast<int>(shape.width);
  if (width % lanes == 0) {
    normalise_row<lanes>(out + row * width, means + row, rstds + row, x + row * width, gain, bias, width);
  } else {
    normalise_row<1>(out + row * width, means + row, rstds + row, x + row * width, gain, bias, width);
  }
}

template <int n>
__device__ inline void gradient_of_row(Element* to, const Element* d_out, const Element* x, float mean, float rstd,
                                       const Element* gain, int width, bool add) {
  const int first = static_cast<int>(threadIdx.x) % warp_size * n;
  float sum = 0;
  float spread = 0;
  for (int i = first; i < width; i += warp_size * n) {
    float d[n];
    float v[n];
    float g[n];
    Vector<n>::load(d_out + i, d);
    Vector<n>::load(x + i, v);
    Vector<n>::load(gain + i, g);
    for (int j = 0; j < n; ++j) {
      sum += d[j] * g[j];
      spread += d[j] * g[j] * ((v[j] - mean) * rstd);
    }
  }
  const float d_mean = warp_sum(sum) / static_cast<float>(width);
  const float d_spread = warp_sum(spread) / static_cast<float>(width);
  for (int i = first; i < width; i += warp_size * n) {
    float d[n];
    float v[n];
    float g[n];
    float before[n] = {};
    Vector<n>::load(d_out + i, d);
    Vector<n>::load(x + i, v);
    Vector<n>::load(gain + i, g);
    if (add) Vector<n>::load(to + i, before);
    for (int j = 0; j < n; ++j) before[j] += (d[j] * g[j] - d_mean - (v[j] - mean) * rstd * d_spread) * rstd;
    Vector<n>::store(to + i, before);
  }
}

struct RowsAdded {
  Count rows;
  Count width;
  Flag add;
};

// The gradient of x, or d_x += that.
KERNEL void layer_norm_backward_input(Element* d_x, const Element* d_out, const Element* x, const float* means,
                                      const float* rstds, const Element* gain, RowsAdded shape) {
  const Size row = static_cast<Size>(blockIdx.x) * rows_of_block + threadIdx.x / warp_size;
  if (row >= shape.rows) return;
  const int width = static_cast<int>(shape.width);
  const Size at = row * width;
  if (width % lanes == 0) {
    gradient_of_row<lanes>(d_x + at, d_out + at, x + at, means[row], rstds[row], gain, width, shape.add != 0);
  } else {
    gradient_of_row<1>(d_x + at, d_out + at, x + at, means[row], rstds[row], gain, width, shape.add != 0);
  }
}
