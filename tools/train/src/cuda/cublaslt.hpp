#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

struct CUstream_st;

/// The part of cuBLASLt's interface that the engine uses, declared here, so that no CUDA toolkit is needed to build it;
/// names and values are those of NVIDIA's documentation. The library is opened at run time. A test compares the
/// declarations with cublasLt.h where there is one.
namespace train::cublaslt {

struct Context;
struct MatmulDesc;
struct MatrixLayout;
struct MatmulPreference;

inline constexpr int success = 0;         // CUBLAS_STATUS_SUCCESS
inline constexpr int not_supported = 15;  // CUBLAS_STATUS_NOT_SUPPORTED
inline constexpr int compute_32f = 68;
inline constexpr int real_32f = 0;    // CUDA_R_32F
inline constexpr int real_16bf = 14;  // CUDA_R_16BF
inline constexpr int operation_none = 0;
inline constexpr int operation_transpose = 1;
inline constexpr int layout_batch_count = 5;
inline constexpr int layout_strided_batch_offset = 6;
inline constexpr int desc_transpose_a = 3;
inline constexpr int desc_transpose_b = 4;
inline constexpr int desc_epilogue = 7;
inline constexpr int desc_bias_pointer = 8;
inline constexpr int epilogue_bias = 4;
inline constexpr int preference_max_workspace_bytes = 1;
inline constexpr int preference_reduction_scheme_mask = 3;
inline constexpr int preference_min_alignment_a_bytes = 5;  // then of B, C and D
inline constexpr int reduction_scheme_compute_type = 2;

struct Algorithm {
  std::uint64_t data[8];
};

struct HeuristicResult {
  Algorithm algorithm;
  std::size_t workspace_bytes;
  int state;
  float waves;
  int reserved[4];
};

/// The functions, and the file in which they were found.
struct Functions {
  std::string file;
  std::size_t (*version)();
  int (*create)(Context** handle);
  int (*desc_create)(MatmulDesc** desc, int compute_type, int scale_type);
  int (*desc_destroy)(MatmulDesc* desc);
  int (*desc_set)(MatmulDesc* desc, int attribute, const void* value, std::size_t bytes);
  int (*layout_create)(MatrixLayout** layout, int type, std::uint64_t rows, std::uint64_t columns, std::int64_t stride);
  int (*layout_destroy)(MatrixLayout* layout);
  int (*layout_set)(MatrixLayout* layout, int attribute, const void* value, std::size_t bytes);
  int (*preference_create)(MatmulPreference** preference);
  int (*preference_destroy)(MatmulPreference* preference);
  int (*preference_set)(MatmulPreference* preference, int attribute, const void* value, std::size_t bytes);
  int (*heuristic)(Context* handle, MatmulDesc* desc, MatrixLayout* a, MatrixLayout* b, MatrixLayout* c,
                   MatrixLayout* d, MatmulPreference* preference, int requested, HeuristicResult* results, int* found);
  int (*matmul)(Context* handle, MatmulDesc* desc, const void* alpha, const void* a, MatrixLayout* a_layout,
                const void* b, MatrixLayout* b_layout, const void* beta, const void* c, MatrixLayout* c_layout, void* d,
                MatrixLayout* d_layout, const Algorithm* algorithm, void* workspace, std::size_t workspace_bytes,
                CUstream_st* stream);
};

/// Opens libcublasLt.so.13 or .12 at the first call: the file that the environment variable COX_TRAIN_CUBLASLT names,
/// or one on the loader's search path, in a CUDA toolkit (CUDA_HOME, CUDA_PATH, /usr/local/cuda), or in NVIDIA's Python
/// wheels. Returns null if there is none; `why_not` says why. "none" in COX_TRAIN_CUBLASLT switches it off.
[[nodiscard]] const Functions* find(std::string& why_not);

}  // namespace train::cublaslt
