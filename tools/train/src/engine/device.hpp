#pragma once

#include <engine/launch.hpp>
#include <engine/options.hpp>
#include <kernels/kernel_list.hpp>

#include <coxswain/runtime/tensor/element_type.hpp>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <source_location>
#include <utility>
#include <vector>

namespace train {

/// out = a b, or out += a b, for `batch` pairs of matrices in row-major order, one after the other. a has m x k
/// elements and b k x n, after transposition.
struct Product {
  std::size_t m = 0;
  std::size_t n = 0;
  std::size_t k = 0;
  bool a_transposed = false;
  bool b_transposed = false;
  bool accumulate = false;
  bool float_result = false;  ///< the result has floats, whatever the type of activations: gradients of parameters
  std::size_t batch = 1;
  std::size_t alignment = 256;  ///< bytes to which all three are aligned, at least
};

/// A device with the kernels of the engine. Copies share the kernels. `Backend` has what depends on the kind of device:
/// its client and kernels, how work is divided, and products by a library where it has one.
template <class Backend>
class Device {
 public:
  using Client = typename Backend::Client;

  explicit Device(Client client, Precision precision = Precision::Float32)
      : client_(std::move(client)),
        precision_(precision),
        products_(std::make_shared<typename Backend::Products>(client_, precision)) {
    for (const KernelSource& source : kernel_sources()) kernels_.push_back(Backend::make(source, precision));
  }

  [[nodiscard]] const Client& client() const { return client_; }
  /// The type of activations and their gradients.
  [[nodiscard]] Precision precision() const { return precision_; }
  [[nodiscard]] cox::ElementType element_type() const {
    return precision_ == Precision::Bfloat16 ? cox::ElementType::BF16 : cox::ElementType::F32;
  }

  /// New memory for that many floats, or 32-bit integers, with undefined contents.
  [[nodiscard]] cox::Handle floats(std::size_t count) const { return client_.empty(count * sizeof(float)); }
  /// New memory for that many activations, with undefined contents.
  [[nodiscard]] cox::Handle activations(std::size_t count) const {
    return client_.empty(count * cox::element_size(element_type()));
  }
  /// Chunks of rows whose sums are computed at the same time.
  [[nodiscard]] std::size_t row_chunks(std::size_t rows) const { return Backend::row_chunks(rows); }

  // All calls below queue work on the stream of the calling thread.

  /// Queues one kernel.
  void launch(KernelId id, const Units& units, cox::KernelArguments arguments,
              std::source_location site = std::source_location::current()) const {
    const KernelSource& source = kernel_sources()[static_cast<std::size_t>(id)];
    client_.launch(*kernels_[static_cast<std::size_t>(id)], Backend::grid(source.cuda, units, precision_),
                   std::move(arguments), cox::ExecutionMode::Checked, site);
  }
  /// Queues a product of matrices.
  void product(const cox::Handle& out, const cox::Handle& a, const cox::Handle& b, const Product& shape,
               std::source_location site = std::source_location::current()) const {
    if (!products_->multiply(client_, out, a, b, nullptr, shape, site)) launch_product(out, a, b, shape, site);
  }
  /// Queues out [m, n] = a b + bias [n].
  void product_and_bias(const cox::Handle& out, const cox::Handle& a, const cox::Handle& b, const cox::Handle& bias,
                        const Product& shape, std::source_location site = std::source_location::current()) const {
    if (products_->multiply(client_, out, a, b, &bias, shape, site)) return;
    launch_product(out, a, b, shape, site);
    launch(KernelId::AddBias, {.columns = shape.m * shape.n}, Launch().inout(out).in(bias).size(shape.m).size(shape.n),
           site);
  }

 private:
  void launch_product(const cox::Handle& out, const cox::Handle& a, const cox::Handle& b, const Product& shape,
                      std::source_location site) const {
    launch(shape.float_result ? KernelId::MatrixProductFloat : KernelId::MatrixProduct,
           {.rows = shape.m, .columns = shape.n, .batch = shape.batch},
           Launch()
               .sum(out, shape.accumulate)
               .in(a)
               .in(b)
               .size(shape.m)
               .size(shape.n)
               .size(shape.k)
               .flag(shape.a_transposed)
               .flag(shape.b_transposed)
               .flag(shape.accumulate)
               .size(shape.batch),
           site);
  }

  Client client_;
  Precision precision_;
  std::shared_ptr<typename Backend::Products> products_;
  std::vector<std::optional<typename Backend::Kernel>> kernels_;  // by KernelId; none that the kind of device lacks
};

}  // namespace train
