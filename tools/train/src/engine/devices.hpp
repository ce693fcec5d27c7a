#pragma once

#include <engine/options.hpp>

#include <coxswain/runtime/communication/communication_id.hpp>
#include <coxswain/servers/host/server/host_options.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

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

/// Most devices of one process.
inline constexpr std::size_t max_local_devices = 64;

/// Index of the first device of this process: 0, or behind the GPUs of the processes of the world on this host that
/// have lower numbers, of which each has as many. Reads the environment. Throws as cox::discover().
[[nodiscard]] std::size_t first_device(const Options& options);
/// Why the devices of the options cannot be used; empty if they can.
[[nodiscard]] std::string missing_devices(const Options& options);
/// The devices of this process, by their names in it.
[[nodiscard]] std::vector<cox::DeviceId> local_devices(const Options& options);
/// The same as a communicator, if this is the only process.
[[nodiscard]] cox::CommunicationId devices_of(const Options& options);

}  // namespace train
