#pragma once

#include <coxswain/collectives/communicator/communicator.hpp>
#include <coxswain/collectives/nccl/nccl_communicator.hpp>
#include <coxswain/device_handle/base/device_id.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace cox {

/// The devices of the communicator that belong to this process, by their names in it, in the order of their ranks.
[[nodiscard]] std::vector<DeviceId> own_devices(const CommunicationId& devices);

/// What NCCL's communicators need if the communicator has ranks of other processes; nothing if it has none. Their
/// creation is an operation of a sequence of its own (Communicator::creation), so that it has its place in the order of
/// all operations of the world, a deadline, and errors that name the missing processes. `mark`: see NcclWorldPart.
/// Throws CollectiveError Aborted (closed).
[[nodiscard]] std::optional<NcclWorldPart> nccl_world_part(
    const std::shared_ptr<Communicator>& communicator,
    std::function<void(CommunicatorNumber, std::uint64_t, const std::exception_ptr&, DeviceId)> mark);

}  // namespace cox
