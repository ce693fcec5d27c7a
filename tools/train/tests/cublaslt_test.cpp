// The engine's declarations of cuBLASLt against those of the header, where there is one; the library can be opened.

#include <cuda/cublaslt.hpp>
#include <require.hpp>

#include <cublasLt.h>

#include <cstddef>
#include <cstdio>
#include <string>
#include <type_traits>

namespace lt = train::cublaslt;

static_assert(lt::success == CUBLAS_STATUS_SUCCESS && lt::not_supported == CUBLAS_STATUS_NOT_SUPPORTED);
static_assert(lt::compute_32f == CUBLAS_COMPUTE_32F);
static_assert(lt::real_32f == CUDA_R_32F && lt::real_16bf == CUDA_R_16BF);
static_assert(lt::operation_none == CUBLAS_OP_N && lt::operation_transpose == CUBLAS_OP_T);
static_assert(lt::layout_batch_count == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT);
static_assert(lt::layout_strided_batch_offset == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET);
static_assert(lt::desc_transpose_a == CUBLASLT_MATMUL_DESC_TRANSA &&
              lt::desc_transpose_b == CUBLASLT_MATMUL_DESC_TRANSB);
static_assert(lt::desc_epilogue == CUBLASLT_MATMUL_DESC_EPILOGUE);
static_assert(lt::desc_bias_pointer == CUBLASLT_MATMUL_DESC_BIAS_POINTER);
static_assert(lt::epilogue_bias == CUBLASLT_EPILOGUE_BIAS);
static_assert(lt::preference_max_workspace_bytes == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
static_assert(lt::preference_reduction_scheme_mask == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK);
static_assert(lt::preference_min_alignment_a_bytes == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
static_assert(lt::preference_min_alignment_a_bytes + 3 == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
static_assert(lt::reduction_scheme_compute_type == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
static_assert(sizeof(lt::Algorithm) == sizeof(cublasLtMatmulAlgo_t));
static_assert(sizeof(lt::HeuristicResult) == sizeof(cublasLtMatmulHeuristicResult_t));
static_assert(offsetof(lt::HeuristicResult, workspace_bytes) ==
              offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
static_assert(offsetof(lt::HeuristicResult, state) == offsetof(cublasLtMatmulHeuristicResult_t, state));

int main() {
  std::string why_not;
  const lt::Functions* const functions = lt::find(why_not);
  if (functions == nullptr) {
    std::printf("skipped: needs cuBLASLt: %s\n", why_not.c_str());
    return 0;
  }
  require(functions->version() >= 120000, "the version of cuBLASLt");
  lt::MatmulDesc* desc = nullptr;
  require(functions->desc_create(&desc, lt::compute_32f, lt::real_32f) == lt::success, "a descriptor");
  require(functions->desc_destroy(desc) == lt::success, "a descriptor");
  std::printf("%s: version %zu\n", functions->file.c_str(), functions->version());
  return 0;
}
