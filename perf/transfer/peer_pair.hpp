#pragma once

#include <coxswain/perf/cuda/open_gpu.hpp>
#include <coxswain/perf/cuda/raw_memory.hpp>
#include <coxswain/runtime/handle/handle.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace cox::perf {

/// Whether each can be given access to the other's memory. Opens neither.
[[nodiscard]] bool gpus_reach_each_other(int first, int second);

/// Two GPUs, and memory of both for copies from the first to the second. The first one's context is current.
class PeerPair {
 public:
  /// `first` is open; `second` is opened, and they are given access to each other's memory if they can have it. Throws
  /// CudaError if they have not so much memory.
  PeerPair(const OpenGpu& first, std::uint16_t second, std::size_t largest);

  /// cuMemcpyPeerAsync between memory of cuMemAlloc, and the wait for it, on a stream of the first GPU.
  void copy_peer(std::size_t bytes) const {
    copy_peer(second_memory_.address(), first_memory_.address(), bytes, first_);
  }
  /// The same, on a stream of the second.
  void pull_peer(std::size_t bytes) const {
    copy_peer(second_memory_.address(), first_memory_.address(), bytes, second_);
  }
  /// cuMemcpyDtoDAsync between memory of cuMemAlloc, and the wait for it.
  void copy(std::size_t bytes) const { copy(second_memory_.address(), first_memory_.address(), bytes); }
  /// The same between memory of the clients.
  void copy_of_clients(std::size_t bytes) const { copy(second_address_, first_address_, bytes); }
  /// cuMemcpyPeerAsync between memory of the clients, and the wait for it.
  void copy_peer_of_clients(std::size_t bytes) const { copy_peer(second_address_, first_address_, bytes, first_); }
  /// to_client, and the wait for it. Returns what came of it.
  [[nodiscard]] Handle to_client(std::size_t bytes) const;
  /// So many of copy_peer(), and of to_client(), that are waited for together: each to memory of its own, which must
  /// fit into `largest`.
  void copy_peer_in_stream(std::size_t bytes, std::size_t times) const;
  [[nodiscard]] std::vector<Handle> to_client_in_stream(std::size_t bytes, std::size_t times) const;

 private:
  void copy_peer(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, const OpenGpu& on, std::size_t times = 1) const;
  void copy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) const;

  const OpenGpu& first_;
  const OpenGpu second_;
  const std::size_t largest_;
  const RawDeviceMemory first_memory_;
  const RawDeviceMemory second_memory_;
  Handle first_handle_;
  Handle second_handle_;
  CUdeviceptr first_address_ = 0;
  CUdeviceptr second_address_ = 0;
};

/// One that is made when it is first asked for.
class LazyPeerPair {
 public:
  LazyPeerPair(const OpenGpu& first, std::uint16_t second, std::size_t largest)
      : first_(first), second_(second), largest_(largest) {}
  [[nodiscard]] const PeerPair& get() {
    if (!pair_) pair_.emplace(first_, second_, largest_);
    return *pair_;
  }

 private:
  const OpenGpu& first_;
  const std::uint16_t second_;
  const std::size_t largest_;
  std::optional<PeerPair> pair_;
};

}  // namespace cox::perf
