#pragma once

#include <coxswain/runtime/base/device_properties.hpp>
#include <coxswain/runtime/base/location.hpp>
#include <coxswain/runtime/base/small_vector.hpp>
#include <coxswain/runtime/launch/cube_count.hpp>
#include <coxswain/servers/cuda/driver/driver.hpp>
#include <coxswain/servers/cuda/kernel/cuda_kernel.hpp>
#include <coxswain/servers/cuda/stream/cuda_stream.hpp>
#include <coxswain/servers/cuda/stream/stream_queue.hpp>

#include <cstddef>
#include <cstdint>
#include <source_location>

namespace cox::detail {

/// A validated launch, as the driver receives it.
struct CudaLaunch {
  /// One parameter of the kernel: words from index `first` on, or the tensor map of that index.
  struct Parameter {
    std::uint32_t first = 0;
    bool is_tensor_map = false;
  };

  CUfunction function = nullptr;
  bool has_clusters = false;  ///< LoadedKernel::has_clusters
  CubeCount::Static count;
  CubeDim dim;
  const CudaKernelOptions* options = nullptr;
  SmallVector<std::uint64_t, 12> words;  ///< addresses and scalars; each begins in a new word
  SmallVector<Parameter, 12> parameters;
  SmallVector<CUtensorMap, 1> tensor_maps;

  /// Adds a parameter whose value begins in the next word.
  void add_word(std::uint64_t value) {
    parameters.push_back({static_cast<std::uint32_t>(words.size()), false});
    words.push_back(value);
  }
  /// Gives the launch to the driver, or adds it to the stream's batch of launches. The driver's result for a batched
  /// launch may be known later: a failure is then added to the errors of `stream` at `sequence`, and by that time the
  /// memory that the kernel should have written is poisoned (L14). In a capture `stream` may have been destroyed
  /// already. Throws LaunchError, std::bad_alloc.
  void issue(const IssueTarget& target, CudaStream& stream, std::uint64_t sequence, const Location& location,
             const char* name, std::source_location site) const;

  /// Whether the launch may be batched with others: it has neither attributes nor tensor maps.
  [[nodiscard]] bool can_batch() const noexcept {
    return tensor_maps.empty() && !has_clusters && options->cluster_dim[0] == 0 && !options->cooperative &&
           !options->programmatic_launch;
  }

 private:
  void issue_batched(StreamQueue& queue, const PieceUses& uses, CudaStream& stream, std::uint64_t sequence,
                     const char* name, std::source_location site) const;
  void issue_single(CUstream stream, const Location& location, const char* name, std::source_location site) const;
};

}  // namespace cox::detail
