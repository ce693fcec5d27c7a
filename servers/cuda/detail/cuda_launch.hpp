#pragma once

#include <coxswain/runtime/cube_count.hpp>
#include <coxswain/runtime/device_properties.hpp>
#include <coxswain/runtime/place.hpp>
#include <coxswain/runtime/small_vector.hpp>
#include <coxswain/servers/cuda/cuda_kernel.hpp>
#include <coxswain/servers/cuda/detail/driver.hpp>
#include <coxswain/servers/cuda/detail/loaded_kernel.hpp>

#include <cstddef>
#include <cstdint>
#include <source_location>

namespace cox::detail {

/// A launch that has been checked: what the driver is given.
struct CudaLaunch {
  /// One parameter of the kernel: words from `first` on, or a tensor map.
  struct Parameter {
    std::uint32_t first = 0;
    bool is_tensor_map = false;
  };

  CUfunction function = nullptr;
  CubeCount::Static count;
  CubeDim dim;
  const CudaKernelOptions* options = nullptr;
  SmallVector<std::uint64_t, 12> words;  ///< addresses and scalars, each in words of its own
  SmallVector<Parameter, 12> parameters;
  SmallVector<CUtensorMap, 1> tensor_maps;

  /// Adds a parameter whose value begins in the next word.
  void add_word(std::uint64_t value) {
    parameters.push_back({static_cast<std::uint32_t>(words.size()), false});
    words.push_back(value);
  }
  /// Gives the launch to the driver. Throws LaunchError, with the driver's as its cause.
  void issue(CUstream stream, const Place& place, const char* name, std::source_location site) const;
};

}  // namespace cox::detail
