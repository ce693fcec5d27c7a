#pragma once

#include <coxswain/collectives/nccl/nccl.hpp>
#include <coxswain/collectives/nccl/nccl_device_resources.hpp>
#include <coxswain/collectives/nccl/nccl_operation.hpp>

#include <cstddef>
#include <vector>

namespace cox::detail {

/// Launches a rank's part of one operation, or of a group of operations as one, on a stream of its device. No part
/// completes before the parts of all ranks that read memory have begun. `scratch`: memory of this device whose contents
/// do not matter. Throws CollectiveError Backend.
void launch_nccl_calls(NcclComm comm, std::size_t world_size, const NcclCalls& calls, void* scratch,
                       CUstream_st* stream);

/// Launches first operations of these ranks of a communicator of `world_size` ranks, so that NCCL connects each of them
/// to each other rank. The processes of the other ranks must call it, too. Throws CollectiveError Backend.
void begin_connecting(const std::vector<NcclComm>& comms, std::size_t world_size, const NcclDeviceResources& opened);

/// Runs first operations of all ranks, so that NCCL connects each rank to each other rank. `comms` is ordered by rank.
/// Blocks until they have completed. Throws CollectiveError Backend, and what NcclDeviceResources::synchronize throws.
void connect_ranks(const std::vector<NcclComm>& comms, const NcclDeviceResources& opened);

/// Aborts all of these at the same time, each on a thread of its own, since an abort may wait for those of the other
/// ranks of the process. Null pointers are skipped. Failures are logged.
void abort_communicators(const std::vector<NcclComm>& comms) noexcept;

}  // namespace cox::detail
