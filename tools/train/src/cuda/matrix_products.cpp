#include <cuda/matrix_products.hpp>

#include <coxswain/runtime/launch/kernel_arguments.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <utility>

namespace train {
namespace {

void check(int status, const char* call) {
  if (status == cublaslt::success) return;
  throw std::runtime_error(std::string(call) + " failed with status " + std::to_string(status));
}

}  // namespace

/// The descriptors of a shape, and its algorithm. Created on the client's thread, then used on the device thread alone.
/// cuBLASLt has column-major matrices: it computes the transposed product, with a and b exchanged, of the same memory.
class MatrixProducts::Plan {
 public:
  Plan(const cublaslt::Functions& lt, const Product& shape, Precision precision, bool bias) : lt_(lt), bias_(bias) {
    const int type = precision == Precision::Bfloat16 ? cublaslt::real_16bf : cublaslt::real_32f;
    const int result = shape.float_result ? cublaslt::real_32f : type;
    check(lt.desc_create(&desc_, cublaslt::compute_32f, cublaslt::real_32f), "cublasLtMatmulDescCreate");
    set_desc(cublaslt::desc_transpose_a, operation(shape.b_transposed));
    set_desc(cublaslt::desc_transpose_b, operation(shape.a_transposed));
    if (bias) set_desc(cublaslt::desc_epilogue, cublaslt::epilogue_bias);
    first_ = layout(type, shape.b_transposed ? shape.k : shape.n, shape.b_transposed ? shape.n : shape.k, shape.batch);
    second_ = layout(type, shape.a_transposed ? shape.m : shape.k, shape.a_transposed ? shape.k : shape.m, shape.batch);
    result_ = layout(result, shape.n, shape.m, shape.batch);
  }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;
  ~Plan() {
    for (cublaslt::MatrixLayout* const one : {first_, second_, result_})
      if (one != nullptr) lt_.layout_destroy(one);
    if (desc_ != nullptr) lt_.desc_destroy(desc_);
  }

  /// Whether choose() has run. To be asked when no product of this plan is queued by call_quiet.
  [[nodiscard]] bool chosen() const { return chosen_; }
  /// Whether there is no algorithm.
  [[nodiscard]] bool refused() const { return refused_; }

  void choose(cublaslt::Context* context, std::size_t alignment) {
    cublaslt::MatmulPreference* preference = nullptr;
    check(lt_.preference_create(&preference), "cublasLtMatmulPreferenceCreate");
    const std::unique_ptr<cublaslt::MatmulPreference, decltype(lt_.preference_destroy)> guard(preference,
                                                                                              lt_.preference_destroy);
    const auto set = [&](int attribute, const auto& value) {
      check(lt_.preference_set(preference, attribute, &value, sizeof(value)), "cublasLtMatmulPreferenceSetAttribute");
    };
    set(cublaslt::preference_max_workspace_bytes, std::uint64_t{workspace_bytes});
    // Partial sums are added in a fixed order, in the workspace.
    set(cublaslt::preference_reduction_scheme_mask, std::uint32_t{cublaslt::reduction_scheme_compute_type});
    for (int operand = 0; operand < 4; ++operand)
      set(cublaslt::preference_min_alignment_a_bytes + operand, static_cast<std::uint32_t>(alignment));
    cublaslt::HeuristicResult result{};
    int found = 0;
    const int status = lt_.heuristic(context, desc_, first_, second_, result_, result_, preference, 1, &result, &found);
    // Only a shape without an algorithm is left to the plain kernel. Any other failure, such as of memory, may happen
    // on one rank alone, whose digits would then be others.
    if (status != cublaslt::not_supported) check(status, "cublasLtMatmulAlgoGetHeuristic");
    const bool none = status == cublaslt::not_supported || found == 0;
    if (!none && result.state != cublaslt::not_supported) check(result.state, "cublasLtMatmulAlgoGetHeuristic");
    chosen_ = true;
    refused_ = none || result.state == cublaslt::not_supported;
    algorithm_ = result.algorithm;
  }
  void run(cublaslt::Context* context, bool accumulate, CUstream_st* stream, std::span<void* const> buffers) {
    constexpr float one = 1.0F;
    const float beta = accumulate ? 1.0F : 0.0F;
    void* const out = buffers[0];
    if (bias_) set_desc(cublaslt::desc_bias_pointer, buffers[4]);
    check(lt_.matmul(context, desc_, &one, buffers[2], first_, buffers[1], second_, &beta, out, result_, out, result_,
                     &algorithm_, buffers[3], workspace_bytes, stream),
          "cublasLtMatmul");
  }

 private:
  static std::int32_t operation(bool transposed) {
    return transposed ? cublaslt::operation_transpose : cublaslt::operation_none;
  }
  template <class Value>
  void set_desc(int attribute, Value value) {
    check(lt_.desc_set(desc_, attribute, &value, sizeof(value)), "cublasLtMatmulDescSetAttribute");
  }
  [[nodiscard]] cublaslt::MatrixLayout* layout(int type, std::size_t rows, std::size_t columns, std::size_t batch) {
    cublaslt::MatrixLayout* made = nullptr;
    check(lt_.layout_create(&made, type, rows, columns, static_cast<std::int64_t>(rows)), "cublasLtMatrixLayoutCreate");
    const auto count = static_cast<std::int32_t>(batch);
    const auto stride = static_cast<std::int64_t>(rows * columns);
    check(lt_.layout_set(made, cublaslt::layout_batch_count, &count, sizeof(count)),
          "cublasLtMatrixLayoutSetAttribute");
    check(lt_.layout_set(made, cublaslt::layout_strided_batch_offset, &stride, sizeof(stride)),
          "cublasLtMatrixLayoutSetAttribute");
    return made;
  }

  const cublaslt::Functions& lt_;
  bool bias_;
  bool chosen_ = false;
  bool refused_ = false;
  cublaslt::MatmulDesc* desc_ = nullptr;
  cublaslt::MatrixLayout* first_ = nullptr;
  cublaslt::MatrixLayout* second_ = nullptr;
  cublaslt::MatrixLayout* result_ = nullptr;
  cublaslt::Algorithm algorithm_{};
};

MatrixProducts::MatrixProducts(const cox::CudaClient& client, Precision precision)
    : precision_(precision),
      lt_(cublaslt::find(why_not_)),
      context_(std::make_shared<cublaslt::Context*>(nullptr)),
      workspace_(client.empty(lt_ == nullptr ? 4 : workspace_bytes)) {}

bool MatrixProducts::usable(std::string& why_not) const {
  why_not = why_not_;
  return lt_ != nullptr;
}

bool MatrixProducts::multiply(const cox::CudaClient& client, const cox::Handle& out, const cox::Handle& a,
                              const cox::Handle& b, const cox::Handle* bias, const Product& shape,
                              std::source_location site) {
  if (lt_ == nullptr) return false;
  const Key key{shape.m,
                shape.n,
                shape.k,
                shape.batch,
                shape.alignment,
                shape.a_transposed,
                shape.b_transposed,
                shape.float_result,
                bias != nullptr};
  std::shared_ptr<Plan>& plan = plans_[key];
  if (plan == nullptr) plan = std::make_shared<Plan>(*lt_, shape, precision_, bias != nullptr);
  if (plan->refused()) return false;

  cox::KernelArguments arguments;
  arguments.with_buffer(out, shape.accumulate ? cox::Access::Write : cox::Access::Overwrite)
      .with_buffer(a, cox::Access::Read)
      .with_buffer(b, cox::Access::Read)
      .with_buffer(workspace_, cox::Access::Overwrite);
  if (bias != nullptr) arguments.with_buffer(*bias, cox::Access::Read);
  const auto run = [plan, context = context_, accumulate = shape.accumulate](CUstream_st* stream,
                                                                             std::span<void* const> buffers) {
    plan->run(*context, accumulate, stream, buffers);
  };
  if (plan->chosen()) {
    client.call(std::move(arguments), run, site);
    return true;
  }
  // On the device thread, where the context of the GPU is current. The handle is never destroyed: that would wait for
  // running kernels, perhaps those of a collective in which a rank is missing.
  const auto first = [plan, context = context_, lt = lt_, alignment = shape.alignment, run](
                         CUstream_st* stream, std::span<void* const> buffers) {
    if (*context == nullptr) check(lt->create(context.get()), "cublasLtCreate");
    plan->choose(*context, alignment);
    if (!plan->refused()) run(stream, buffers);
  };
  client.call_quiet(std::move(arguments), first, site);
  return !plan->refused();
}

}  // namespace train
