#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace cox {

/// Limits and widths of the compute side of a device.
struct HardwareProperties {
  std::uint32_t load_width_bits = 128;  ///< widest load of one unit
  std::uint32_t plane_size = 32;        ///< units that go in step (warp)
  std::uint32_t max_vector_size = 16;   ///< elements of one vector load, at most
  std::uint32_t max_bindings = 1024;    ///< buffers of one launch
  std::uint32_t cpu_threads = 0;        ///< of a CPU, that run kernels; 0: the device is no CPU
  std::size_t max_shared_memory = 0;    ///< bytes for one cube
  std::uint32_t max_units_per_cube = 1024;
  std::array<std::uint32_t, 3> max_cube_dim{1024, 1024, 64};
  std::array<std::uint32_t, 3> max_cube_count{2147483647, 65535, 65535};
};

/// The memory side of a device, in bytes.
struct MemoryProperties {
  std::size_t capacity = 0;   ///< all that one client could ever have
  std::size_t alignment = 1;  ///< of every allocation
};

/// What a device can do beyond what every server must.
enum class Feature : std::uint8_t {
  DynamicCubeCount,
  Collectives,  ///< With other devices. On CUDA devices: there are several, and there is an NCCL that can be used.
  PeerCopy,     ///< Transfers from GPU to GPU: there are several.
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
