#pragma once

#include <engine/options.hpp>

#include <coxswain/runtime/communication/communication_id.hpp>
#include <coxswain/servers/host/server/host_options.hpp>

#include <cstdint>
#include <string>

namespace train {

// Types of devices, as in cox::DeviceId. The installed library may have no header for that of GPUs.
inline constexpr std::uint16_t host_type = cox::host_device_type;
inline constexpr std::uint16_t cuda_type = 1;

/// Whether this program can use GPUs.
#ifdef TRAIN_CUDA
inline constexpr bool has_cuda = true;
#else
inline constexpr bool has_cuda = false;
#endif

/// Why the devices of the options cannot be used; empty if they can.
[[nodiscard]] std::string missing_devices(const Options& options);
/// The devices of the options, in the order of ranks.
[[nodiscard]] cox::CommunicationId devices_of(const Options& options);

}  // namespace train
