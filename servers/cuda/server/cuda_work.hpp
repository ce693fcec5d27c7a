#pragma once

#include <coxswain/runtime/async/promise.hpp>
#include <coxswain/runtime/bytes/upload.hpp>
#include <coxswain/runtime/launch/cube_count.hpp>
#include <coxswain/runtime/launch/kernel_arguments.hpp>
#include <coxswain/servers/cuda/kernel/cuda_kernel.hpp>
#include <coxswain/servers/cuda/server/cuda_device.hpp>

#include <exception>
#include <vector>

namespace cox::detail {

// The operations of a CUDA device: checked, and queued on the caller's stream. Device thread only; none of them waits.

/// Throws IoError, CudaError; then the caller must poison what the upload should have written.
void queue_upload(CudaDevice& device, CudaStream& stream, Upload& upload, const Caller& caller);
/// Errors, including those of the request itself, are delivered through the promise.
void queue_download(CudaDevice& device, CudaStream& stream, Downloads downloads, const Caller& caller,
                    Promise<std::vector<Bytes>> promise);
/// Throws LaunchError, CudaError; then the caller must poison what the launch should have written.
void enqueue_cuda_launch(CudaDevice& device, CudaStream& stream, const CudaKernel& kernel, const CubeCount& count,
                         const LaunchArguments& arguments, const Caller& caller);
/// Poisons what a refused launch should have written (L14).
void poison_outputs(CudaDevice& device, const CudaKernel& kernel, const LaunchArguments& arguments,
                    const std::exception_ptr& error, const Caller& caller) noexcept;
/// Errors are delivered through the promise.
void queue_sync(CudaDevice& device, CudaStream& stream, const Caller& caller, Promise<void> promise);

}  // namespace cox::detail
