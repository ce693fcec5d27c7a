#pragma once

#include <coxswain/runtime/async/promise.hpp>
#include <coxswain/runtime/base/execution_mode.hpp>
#include <coxswain/runtime/bytes/upload.hpp>
#include <coxswain/runtime/launch/cube_count.hpp>
#include <coxswain/runtime/launch/kernel_arguments.hpp>
#include <coxswain/servers/host/kernel/host_kernel.hpp>
#include <coxswain/servers/host/server/host_device.hpp>

#include <vector>

namespace cox::detail {

// These functions check work and queue it on the caller's stream. Device thread only; they do not wait.

/// Moves from the source of the upload. Throws IoError; then nothing was queued.
void queue_upload(HostDevice& device, Upload& upload, const Caller& caller);
/// All errors, also those of the request itself, complete the promise.
void queue_download(HostDevice& device, Downloads downloads, const Caller& caller, Promise<std::vector<Bytes>> promise);
/// Throws LaunchError; then nothing was queued.
void enqueue_host_launch(HostDevice& device, HostKernel kernel, const CubeCount& count,
                         const LaunchArguments& arguments, ExecutionMode mode, const Caller& caller);

}  // namespace cox::detail
