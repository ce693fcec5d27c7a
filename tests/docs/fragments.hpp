#pragma once

// What the fragments of code in docs/*.md use without declaring it. CI compiles each fragment as the body of a function
// (tools/cmake/CoxReadmeProgram.cmake); they are not run.

#include <coxswain/device_handle/base/shutdown.hpp>
#include <coxswain/runtime/config/process_settings.hpp>
#include <coxswain/runtime/error/io_error.hpp>
#include <coxswain/runtime/tensor/tensor_map.hpp>
#include <coxswain/servers/cuda/server/cuda_server.hpp>

#if COX_CCCL_FRAGMENTS  // CCCL is there, and new enough
#include <coxswain/servers/cuda/server/cuda_memory_resource.hpp>
#endif
#if __has_include(<cublasLt.h>)
#include <cublasLt.h>
#endif

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace cox::test::fragments {

extern cox::CudaClient client;
extern const cox::CudaKernel kernel, next;
extern const cox::CubeDim dim;
extern const cox::CubeCount count;
extern const std::string source;
extern const cox::Handle x, y;
extern cox::KernelArguments arguments;
extern std::uint32_t cubes;
extern const std::size_t rows, columns;
extern const cox::Handle matrix;
std::vector<std::byte> read_file(const char* name);

// Of an engine that owns memory and streams.
extern const cox::Handle handle;
extern const cox::NativeCudaStream stream;
extern void* const pointer;
extern const std::size_t bytes;
void engine_step(void* memory, cox::NativeCudaStream on);

#if __has_include(<cublasLt.h>)
extern const cox::Handle a, b, c, workspace;
extern const cublasLtHandle_t lt;
extern const cublasLtMatmulDesc_t plan;
extern const cublasLtMatrixLayout_t la, lb, lc;
extern const cublasLtMatmulAlgo_t algorithm;
extern const float one, zero;
#endif

}  // namespace cox::test::fragments
