// The text of the CUDA kernels, compiled for the CPU, for both types of activations.

#include <cuda_kernels_on_cpu.hpp>
#include <cuda_on_cpu.hpp>

#include <cstring>
#include <map>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#define KERNEL inline

// Each file is compiled by itself, as by the engine, so each has a namespace of its own.
#define COX_TRAIN_BF16 0
namespace float32 {
#include <kernels/cuda/prelude.cu>
namespace attention {
#include <kernels/cuda/attention.cu>
}
namespace column_sums {
#include <kernels/cuda/column_sums.cu>
}
namespace elementwise {
#include <kernels/cuda/elementwise.cu>
}
namespace embedding {
#include <kernels/cuda/embedding.cu>
}
namespace layer_norm {
#include <kernels/cuda/layer_norm.cu>
}
namespace loss {
#include <kernels/cuda/loss.cu>
}
namespace matrix_product {
#include <kernels/cuda/matrix_product.cu>
}
namespace optimizer {
#include <kernels/cuda/optimizer.cu>
}
}  // namespace float32
#undef COX_TRAIN_BF16
#define COX_TRAIN_BF16 1
namespace bfloat16 {
#include <kernels/cuda/prelude.cu>
namespace attention {
#include <kernels/cuda/attention.cu>
}
namespace column_sums {
#include <kernels/cuda/column_sums.cu>
}
namespace elementwise {
#include <kernels/cuda/elementwise.cu>
}
namespace embedding {
#include <kernels/cuda/embedding.cu>
}
namespace layer_norm {
#include <kernels/cuda/layer_norm.cu>
}
namespace loss {
#include <kernels/cuda/loss.cu>
}
namespace matrix_product {
#include <kernels/cuda/matrix_product.cu>
}
namespace optimizer {
#include <kernels/cuda/optimizer.cu>
}
}  // namespace bfloat16

namespace on_cpu {
namespace {

using Call = void (*)(const cox::KernelContext&);

// A parameter as the library passes it: buffers as pointers, in order, then the scalars as one struct.
template <class Parameter>
Parameter parameter(const cox::KernelContext& context, std::size_t& buffers) {
  if constexpr (std::is_pointer_v<Parameter>) {
    if (buffers == context.buffer_count()) throw std::logic_error("a kernel has more buffers than the launch");
    using Pointed = std::remove_pointer_t<Parameter>;
    // A window may end in the middle of the last element of a wider type: take it as bytes.
    using Byte = std::conditional_t<std::is_const_v<Pointed>, const std::byte, std::byte>;
    return reinterpret_cast<Parameter>(context.buffer<Byte>(buffers++).data());
  } else {
    if (sizeof(Parameter) != context.words().size_bytes())
      throw std::logic_error("a kernel has other scalars than the launch");
    Parameter value;
    std::memcpy(&value, context.words().data(), sizeof(value));
    return value;
  }
}

template <auto kernel, class... Parameters>
void call(const cox::KernelContext& context, void (*)(Parameters...)) {
  std::size_t buffers = 0;
  std::tuple<Parameters...> arguments{parameter<Parameters>(context, buffers)...};
  if (buffers != context.buffer_count()) throw std::logic_error("a kernel has fewer buffers than the launch");
  std::apply(kernel, arguments);
}
template <auto kernel>
void call(const cox::KernelContext& context) {
  call<kernel>(context, kernel);
}

#define ON_CPU_BOTH(file, name)                                      \
  {                                                                  \
    #name, { call<float32::file::name>, call<bfloat16::file::name> } \
  }
const std::map<std::string, std::pair<Call, Call>> kernels{
    ON_CPU_BOTH(attention, split_heads),
    ON_CPU_BOTH(attention, merge_heads),
    ON_CPU_BOTH(attention, causal_softmax),
    ON_CPU_BOTH(attention, causal_softmax_backward),
    ON_CPU_BOTH(column_sums, bias_backward_chunks),
    ON_CPU_BOTH(column_sums, layer_norm_backward_chunks),
    ON_CPU_BOTH(column_sums, sum_chunks),
    ON_CPU_BOTH(elementwise, add_bias),
    ON_CPU_BOTH(elementwise, gelu_forward),
    ON_CPU_BOTH(elementwise, gelu_backward),
    ON_CPU_BOTH(elementwise, add),
    ON_CPU_BOTH(elementwise, zero),
    ON_CPU_BOTH(elementwise, copy),
    ON_CPU_BOTH(elementwise, round_elements),
    ON_CPU_BOTH(embedding, embed_forward),
    ON_CPU_BOTH(embedding, embed_backward_tokens),
    ON_CPU_BOTH(embedding, embed_backward_positions),
    ON_CPU_BOTH(layer_norm, layer_norm_forward),
    ON_CPU_BOTH(layer_norm, layer_norm_backward_input),
    ON_CPU_BOTH(loss, cross_entropy),
    ON_CPU_BOTH(loss, mean),
    ON_CPU_BOTH(matrix_product, matrix_product),
    ON_CPU_BOTH(matrix_product, matrix_product_float),
    ON_CPU_BOTH(optimizer, square_sum),
    ON_CPU_BOTH(optimizer, total),
    ON_CPU_BOTH(optimizer, clip_factor),
    ON_CPU_BOTH(optimizer, adam_w),
    ON_CPU_BOTH(optimizer, adam_w_rounded),
};

}  // namespace

void run_block(const char* name, bool bfloat16, std::uint32_t threads, const cox::KernelContext& context) {
  const auto found = kernels.find(name);
  if (found == kernels.end()) throw std::logic_error(std::string(name) + " is not compiled for the CPU");
  const Call kernel = bfloat16 ? found->second.second : found->second.first;
  current().run(static_cast<unsigned>(context.linear_cube_index()), context.cube_count().x, threads,
                [&] { kernel(context); });
}

}  // namespace on_cpu
