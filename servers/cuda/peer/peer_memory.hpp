#pragma once

#include <coxswain/runtime/socket/file_descriptor.hpp>
#include <coxswain/servers/cuda/device/cuda_context.hpp>
#include <coxswain/servers/cuda/driver/driver.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace cox::detail {

/// Whether each of these devices can access the memory of each other one. Throws CudaError.
[[nodiscard]] bool all_reach_each_other(const std::vector<std::shared_ptr<CudaContext>>& contexts);

/// Memory of one rank that the kernels of all ranks access: of a GPU of this process, or of another process of this
/// host. It exists as long as a process refers to it, also if the process that created it has ended. Any thread.
class PeerMemory {
 public:
  enum class Sharing : std::uint8_t { None, OtherProcesses };

  /// Memory of the device, all zeros, which each device of this process that can reach it may access. `bytes`: a
  /// multiple of CudaStorage::granule. Blocks until it is zeroed. Throws std::bad_alloc if there is no memory, also if
  /// the driver has none that can be mapped; CudaError, also if it has none that can be shared.
  [[nodiscard]] static std::shared_ptr<PeerMemory> create(const std::shared_ptr<CudaContext>& context,
                                                          std::size_t bytes, Sharing sharing);
  /// Memory that another process has shared, to which these devices of this process get access. Throws CudaError, also
  /// if they cannot reach it; std::bad_alloc.
  [[nodiscard]] static std::shared_ptr<PeerMemory> import(const std::vector<std::shared_ptr<CudaContext>>& devices,
                                                          const FileDescriptor& shared, std::size_t bytes);
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;
  ~PeerMemory();

  [[nodiscard]] CUdeviceptr base() const noexcept { return base_; }
  /// What another process needs to import it. Precondition: created for Sharing::OtherProcesses. Throws CudaError.
  [[nodiscard]] FileDescriptor share() const;

 private:
  PeerMemory(std::shared_ptr<CudaContext> context, std::size_t bytes) noexcept
      : context_(std::move(context)), size_(bytes) {}
  [[nodiscard]] CUresult map(std::span<const CUmemAccessDesc> access) noexcept;

  const std::shared_ptr<CudaContext> context_;
  const std::size_t size_;
  CUmemGenericAllocationHandle piece_ = 0;
  CUdeviceptr base_ = 0;
  bool has_piece_ = false;
  bool is_mapped_ = false;
};

}  // namespace cox::detail
