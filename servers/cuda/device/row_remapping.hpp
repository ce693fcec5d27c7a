#pragma once

#include <optional>
#include <string>

namespace cox::detail {

/// Whether rows of the GPU's memory wait to be remapped, because of uncorrectable errors since it was reset last;
/// std::nullopt if that is not known (no NVML library, no GPU with remapping). Opens NVML for the call: tens of
/// milliseconds. `bus_id`: as cuDeviceGetPCIBusId gives it. `library`: NVML's file. Any thread.
[[nodiscard]] std::optional<bool> rows_wait_for_remapping(const std::string& bus_id, const std::string& library);

}  // namespace cox::detail
