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

// The work that a CUDA device does, checked and queued on the caller's stream. Device thread only; none of it waits.

/// Throws IoError, CudaError: then what it should have written is still to be poisoned.
void queue_upload(CudaDevice& device, CudaStream& stream, Upload& upload, const Caller& caller);
/// What is wrong, also with the request itself, ends in the promise.
void queue_download(CudaDevice& device, CudaStream& stream, Downloads downloads, const Caller& caller,
                    Promise<std::vector<Bytes>> promise);
/// Throws LaunchError, CudaError: then what it should have written is still to be poisoned.
void enqueue_launch(CudaDevice& device, CudaStream& stream, const CudaKernel& kernel, const CubeCount& count,
                    const KernelArguments& arguments, const Caller& caller);
/// A launch was refused: what it should have written is poisoned (L14).
void poison_outputs(CudaDevice& device, const CudaKernel& kernel, const KernelArguments& arguments,
                    const std::exception_ptr& error, const Caller& caller) noexcept;
/// What is wrong ends in the promise.
void queue_sync(CudaDevice& device, CudaStream& stream, const Caller& caller, Promise<void> promise);

}  // namespace cox::detail
