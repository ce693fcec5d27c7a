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

// The work that a host device does, checked and queued on the caller's stream. Device thread only; none of it waits.

/// Takes the source. Throws IoError; then nothing was queued.
void queue_upload(HostDevice& device, Upload& upload, const Caller& caller);
/// What is wrong, also with the request itself, ends in the promise.
void queue_download(HostDevice& device, Downloads downloads, const Caller& caller, Promise<std::vector<Bytes>> promise);
/// Takes the arguments but for the buffers. Throws LaunchError; then nothing was queued.
void enqueue_launch(HostDevice& device, HostKernel kernel, const CubeCount& count, KernelArguments& arguments,
                    ExecutionMode mode, const Caller& caller);

}  // namespace cox::detail
