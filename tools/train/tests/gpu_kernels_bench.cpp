// Times of the kernels and products of GPT-2 124M's shape on one GPU, beside the time that their memory traffic or
// arithmetic needs. usage: gpu_kernels_bench [fp32|bf16]

#include <cuda/cuda_backend.hpp>
#include <data/token_order.hpp>

#include <coxswain/device_handle/base/shutdown.hpp>
#include <coxswain/servers/cuda/device/cuda_devices.hpp>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string_view>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using train::KernelId;
using train::Launch;
using train::Product;

constexpr std::size_t samples = 16;
constexpr std::size_t context = 1024;
constexpr std::size_t heads = 12;
constexpr std::size_t width = 768;
constexpr std::size_t vocabulary = 50304;
constexpr std::size_t rows = samples * context;
constexpr int repetitions = 20;

class Bench {
 public:
  Bench(const cox::CudaClient& client, train::Precision precision) : client_(client), device_(client, precision) {}

  void kernels() {
    const std::size_t narrow = rows * width;
    const std::size_t size = cox::element_size(device_.element_type());
    const auto x = device_.activations(rows * 4 * width);
    const auto y = device_.activations(rows * 4 * width);
    const auto z = device_.activations(rows * 4 * width);
    const auto f = device_.floats(rows);
    const auto g = device_.floats(rows);
    const auto partials = device_.floats(128 * 8 * width);
    const auto vector = device_.activations(4 * width);
    clear(x), clear(y), clear(z), clear(vector), clear(f), clear(g);
    const std::size_t chunks = device_.row_chunks(rows);
    time("add", 3 * narrow * size,
         [&] { device_.launch(KernelId::Add, {.columns = narrow}, Launch().out(x).in(y).in(z).size(narrow)); });
    time("gelu_forward", 8 * narrow * size, [&] {
      device_.launch(KernelId::GeluForward, {.columns = 4 * narrow}, Launch().out(x).in(y).size(4 * narrow));
    });
    time("gelu_backward", 12 * narrow * size, [&] {
      device_.launch(KernelId::GeluBackward, {.columns = 4 * narrow}, Launch().out(x).in(y).in(z).size(4 * narrow));
    });
    time("layer_norm_forward", 2 * narrow * size, [&] {
      device_.launch(KernelId::LayerNormForward, {.rows = rows},
                     Launch().out(x).out(f).out(g).in(y).in(vector).in(vector).size(rows).size(width));
    });
    time("layer_norm_backward_input", 4 * narrow * size, [&] {
      device_.launch(KernelId::LayerNormBackwardInput, {.rows = rows},
                     Launch().inout(x).in(y).in(z).in(f).in(g).in(vector).size(rows).size(width).flag(true));
    });
    time("layer_norm_backward_chunks", 2 * narrow * size, [&] {
      device_.launch(KernelId::LayerNormBackwardChunks, {.rows = chunks, .columns = width},
                     Launch().inout(partials).in(y).in(z).in(f).in(g).size(rows).size(width).size(chunks));
    });
    for (const std::size_t columns : {width, 4 * width})
      time("bias_backward_chunks", rows * columns * size, [&] {
        device_.launch(KernelId::BiasBackwardChunks, {.rows = chunks, .columns = columns},
                       Launch().inout(partials).in(y).size(rows).size(columns).size(chunks));
      });
    time("sum_chunks", chunks * width * 4, [&] {
      device_.launch(KernelId::SumChunks, {.columns = width},
                     Launch().out(f).in(partials).size(chunks).size(width).size(0).size(width).flag(false));
    });
    time("split_heads", 6 * narrow * size, [&] { reorder(KernelId::SplitHeads, x, y); });
    time("merge_heads", 6 * narrow * size, [&] { reorder(KernelId::MergeHeads, x, y); });

    const std::size_t scores = samples * heads * context * context;
    const auto p = device_.activations(scores);
    const auto d = device_.activations(scores);
    clear(p), clear(d);
    const std::size_t score_rows = samples * heads * context;
    time("causal_softmax", scores * size * 3 / 2, [&] {
      device_.launch(KernelId::CausalSoftmax, {.rows = score_rows},
                     Launch().inout(p).size(score_rows).size(context).number(0.125F));
    });
    time("causal_softmax_backward", scores * size * 2, [&] {
      device_.launch(KernelId::CausalSoftmaxBackward, {.rows = score_rows},
                     Launch().inout(d).in(p).size(score_rows).size(context).number(0.125F));
    });

    const auto logits = device_.activations(rows * vocabulary);
    const auto targets = device_.floats(rows);
    clear(logits), clear(targets);
    time("cross_entropy", rows * vocabulary * size * 2, [&] {
      device_.launch(KernelId::CrossEntropy, {.rows = rows},
                     Launch().out(f).inout(logits).in(targets).size(rows).size(vocabulary).number(1.0F));
    });
    time("mean", rows * 4,
         [&] { device_.launch(KernelId::Mean, {}, Launch().out(g).in(f).size(rows).number(1.0F).flag(false)); });
    embedding(x, narrow * size);
    optimizer();
  }

  void products() {
    product("qkv", {.m = rows, .n = 3 * width, .k = width});
    product("projection", {.m = rows, .n = width, .k = width});
    product("mlp in", {.m = rows, .n = 4 * width, .k = width});
    product("mlp out", {.m = rows, .n = width, .k = 4 * width});
    product("logits", {.m = rows, .n = vocabulary, .k = width, .b_transposed = true});
    product("d of qkv's input", {.m = rows, .n = width, .k = 3 * width, .b_transposed = true});
    product("d of mlp in's input", {.m = rows, .n = width, .k = 4 * width, .b_transposed = true});
    product("d of mlp out's input", {.m = rows, .n = 4 * width, .k = width, .b_transposed = true});
    product("d of logits' input", {.m = rows, .n = width, .k = vocabulary});
    product("d of qkv's weight", {.m = width, .n = 3 * width, .k = rows, .a_transposed = true, .float_result = true});
    product("d of projection's weight",
            {.m = width, .n = width, .k = rows, .a_transposed = true, .float_result = true});
    product("d of mlp in's weight",
            {.m = width, .n = 4 * width, .k = rows, .a_transposed = true, .float_result = true});
    product("d of mlp out's weight",
            {.m = 4 * width, .n = width, .k = rows, .a_transposed = true, .float_result = true});
    product("d of the table", {.m = vocabulary, .n = width, .k = rows, .a_transposed = true, .float_result = true});
    const std::size_t depth = width / heads;
    const std::size_t batch = samples * heads;
    product("scores", {.m = context, .n = context, .k = depth, .b_transposed = true, .batch = batch});
    product("heads", {.m = context, .n = depth, .k = context, .batch = batch});
    product("d of values", {.m = context, .n = depth, .k = context, .a_transposed = true, .batch = batch});
  }

 private:
  void clear(const cox::Handle& memory) { client_.write(memory, cox::Bytes::zeroed(memory.size_in_used())); }

  void reorder(KernelId kernel, const cox::Handle& out, const cox::Handle& x) {
    device_.launch(kernel, {.columns = 3 * rows * width},
                   Launch().inout(out).in(x).size(samples).size(context).size(3).size(heads).size(width / heads));
  }

  void embedding(const cox::Handle& x, std::size_t bytes) {
    std::vector<std::int32_t> tokens(rows);
    for (std::size_t i = 0; i < rows; ++i) tokens[i] = i % 6 == 0 ? 0 : static_cast<std::int32_t>(i * 7919 % 80);
    const std::size_t runs = rows;
    const train::TokenOrder sorted(tokens, runs);
    const auto of_rows = client_.create(cox::Bytes::copy_of(tokens));
    const auto order = client_.create(cox::Bytes::copy_of(sorted.order));
    const auto begins = client_.create(cox::Bytes::copy_of(sorted.begins));
    const auto table = device_.activations(vocabulary * width);
    const auto positions = device_.activations(context * width);
    const auto d_table = device_.floats(vocabulary * width);
    clear(table), clear(positions), clear(d_table);
    time("embed_forward", 2 * bytes, [&] {
      device_.launch(KernelId::EmbedForward, {.columns = rows * width},
                     Launch().inout(x).in(of_rows).in(table).in(positions).size(rows).size(context).size(width));
    });
    time("embed_backward_tokens", bytes, [&] {
      device_.launch(KernelId::EmbedBackwardTokens, {.rows = runs, .columns = width},
                     Launch().inout(d_table).in(x).in(of_rows).in(order).in(begins).size(rows).size(width).size(runs));
    });
    time("embed_backward_positions", bytes, [&] {
      device_.launch(KernelId::EmbedBackwardPositions, {.columns = context * width},
                     Launch().inout(d_table).in(x).size(rows).size(context).size(width).flag(false));
    });
  }

  void optimizer() {
    for (const std::size_t count : {vocabulary * width, 4 * width * width, width}) {
      const auto p = device_.floats(count);
      const auto m = device_.floats(count);
      const auto v = device_.floats(count);
      const auto g = device_.floats(count);
      const auto copy = device_.activations(count);
      const auto factor = device_.floats(1);
      const auto schedule = device_.floats(3);
      const auto sums = device_.floats((count + train::square_sum_elements - 1) / train::square_sum_elements);
      clear(p), clear(m), clear(v), clear(g), clear(factor), clear(schedule);
      time("square_sum", 4 * count,
           [&] { device_.launch(KernelId::SquareSum, {.columns = count}, Launch().out(sums).in(g).size(count)); });
      time("adam_w_rounded", 30 * count, [&] {
        device_.launch(KernelId::AdamWRounded, {.columns = count},
                       Launch()
                           .inout(p)
                           .inout(m)
                           .inout(v)
                           .out(copy)
                           .in(g)
                           .in(factor)
                           .in(schedule)
                           .size(count)
                           .number(0.9F)
                           .number(0.95F)
                           .number(1e-8F)
                           .number(0.1F));
      });
    }
  }

  void product(const char* name, Product shape) {
    const std::size_t size = cox::element_size(device_.element_type());
    const auto a = device_.activations(shape.batch * shape.m * shape.k);
    const auto b = device_.activations(shape.batch * shape.k * shape.n);
    const auto out = client_.empty(shape.batch * shape.m * shape.n * (shape.float_result ? 4 : size));
    clear(a), clear(b), clear(out);
    const double flop = 2.0 * static_cast<double>(shape.m) * static_cast<double>(shape.n) *
                        static_cast<double>(shape.k) * static_cast<double>(shape.batch);
    const double seconds = measure([&] { device_.product(out, a, b, shape); });
    const double bytes =
        static_cast<double>(shape.batch) * static_cast<double>(shape.m * shape.k * size + shape.k * shape.n * size +
                                                               shape.m * shape.n * (shape.float_result ? 4 : size));
    std::printf("product %-26s %9.1f us %8.1f TFLOP/s %8.0f GB/s\n", name, 1e6 * seconds, flop / seconds / 1e12,
                bytes / seconds / 1e9);
  }

  double measure(const std::function<void()>& launch) {
    for (int i = 0; i < 3; ++i) launch();
    client_.sync().get();
    const auto begin = Clock::now();
    for (int i = 0; i < repetitions; ++i) launch();
    client_.sync().get();
    return std::chrono::duration<double>(Clock::now() - begin).count() / repetitions;
  }
  void time(const char* name, std::size_t bytes, const std::function<void()>& launch) {
    const double seconds = measure(launch);
    std::printf("%-34s %9.1f us %8.0f GB/s\n", name, 1e6 * seconds, static_cast<double>(bytes) / seconds / 1e9);
  }

  cox::CudaClient client_;
  train::Device<train::CudaBackend> device_;
};

}  // namespace

int main(int argc, char** argv) {
  if (cox::enumerate_cuda_devices().empty()) {
    std::printf("skipped: %s\n", cox::why_no_cuda().c_str());
    return 0;
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const bool fp32 = argc > 1 && std::string_view(argv[1]) == "fp32";
  {
    Bench bench(cox::CudaClient::load({cox::cuda_device_type, 0}),
                fp32 ? train::Precision::Float32 : train::Precision::Bfloat16);
    bench.kernels();
    bench.products();
  }
  cox::shutdown_all();
  return 0;
}
