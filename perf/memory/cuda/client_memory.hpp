#pragma once

#include <coxswain/perf/cuda/open_gpu.hpp>
#include <coxswain/runtime/handle/handle.hpp>

#include <cstddef>
#include <optional>

namespace cox::perf {

/// Memory as users have it: handles of a client.
class ClientMemory {
 public:
  using Allocation = std::optional<Handle>;

  explicit ClientMemory(const OpenGpu& gpu) noexcept : gpu_(gpu) {}
  ClientMemory(const ClientMemory&) = delete;
  ClientMemory& operator=(const ClientMemory&) = delete;
  ~ClientMemory() { gpu_.client().memory_cleanup(); }

  [[nodiscard]] Allocation allocate(std::size_t bytes) const { return gpu_.client().empty(bytes); }
  static void free(Allocation& allocation) noexcept { allocation.reset(); }
  static void free(Allocation&& allocation) noexcept { allocation.reset(); }
  /// Blocks until the device thread has done what it was asked for. Throws what has failed of it.
  void finish() const { gpu_.finish(); }

 private:
  const OpenGpu& gpu_;
};

}  // namespace cox::perf
