#pragma once

#include <coxswain/collectives/nccl/nccl.hpp>
#include <coxswain/collectives/nccl/nccl_device_resources.hpp>
#include <coxswain/collectives/nccl/nccl_operation.hpp>

#include <cstddef>
#include <vector>

namespace cox::detail {

/// A rank's part of one operation, or of a group of them as one, on a stream of its device. `scratch`: memory there
/// that means nothing. Throws CollectiveError Backend; Unsupported for transfers.
void launch_nccl_calls(NcclComm comm, std::size_t world_size, const NcclCalls& calls, void* scratch,
                       CUstream_st* stream);

/// A first meeting of all ranks, by rank, after which NCCL has connected each to each. Blocks. Throws as above, and
/// what NcclDeviceResources::synchronize does.
void connect_ranks(const std::vector<NcclComm>& comms, const NcclDeviceResources& opened);

}  // namespace cox::detail
