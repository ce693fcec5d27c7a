#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace cox {

/// Limits and widths of the compute side of a device.
struct HardwareProperties {
  std::uint32_t load_width_bits = 128;  ///< widest load of one unit
  std::uint32_t plane_size = 32;        ///< units that execute in lockstep (warp)
  std::uint32_t max_vector_size = 16;   ///< maximum number of elements of one vector load
  std::uint32_t max_bindings = 1024;    ///< maximum number of buffers of one launch
  std::uint32_t cpu_threads = 0;        ///< CPU threads that run kernels; 0: the device is not a CPU
  std::size_t max_shared_memory = 0;    ///< bytes per cube
  std::uint32_t max_units_per_cube = 1024;
  std::array<std::uint32_t, 3> max_cube_dim{1024, 1024, 64};
  std::array<std::uint32_t, 3> max_cube_count{2147483647, 65535, 65535};
};

/// The memory of a device, in bytes.
struct MemoryProperties {
  std::size_t capacity = 0;   ///< maximum that one client can allocate
  std::size_t alignment = 1;  ///< alignment of every allocation
};

/// Optional capabilities of a device, in addition to what every server provides.
enum class Feature : std::uint8_t {
  DynamicCubeCount,
  Collectives,  ///< Collectives with other devices. On CUDA: requires several GPUs and a usable NCCL library.
  PeerCopy,     ///< Transfers between GPUs. Requires several GPUs.
  Profiling,
  Graphs,
  TensorMaps,
};

class Features {
 public:
  constexpr void insert(Feature feature) noexcept { bits_ |= bit(feature); }
  [[nodiscard]] constexpr bool contains(Feature feature) const noexcept { return (bits_ & bit(feature)) != 0; }

 private:
  static constexpr std::uint32_t bit(Feature feature) noexcept {
    return std::uint32_t{1} << static_cast<unsigned>(feature);
  }
  std::uint32_t bits_ = 0;
};

struct DeviceProperties {
  std::string name;
  HardwareProperties hardware;
  MemoryProperties memory;
  Features features;
};

}  // namespace cox
