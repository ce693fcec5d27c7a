#pragma once

#include <coxswain/collectives/nccl/completed_prefix.hpp>
#include <coxswain/servers/cuda/device/cuda_context.hpp>
#include <coxswain/servers/cuda/driver/driver.hpp>
#include <coxswain/servers/cuda/driver/driver_object.hpp>

#include <atomic>
#include <cstdint>
#include <memory>

namespace cox::detail {

/// Holds up the work of one driver stream until the host opens it, without blocking the thread that issues the work. A
/// stream passes its holds in their order. Any thread, unless stated otherwise.
class StreamHold {
 public:
  /// Allocates the word that the stream waits for. Throws CudaError.
  explicit StreamHold(std::shared_ptr<CudaContext> context);
  StreamHold(const StreamHold&) = delete;
  StreamHold& operator=(const StreamHold&) = delete;
  ~StreamHold();

  /// Enqueues a hold: work that is issued on the stream later waits until open() is called with the number that this
  /// returns. Device thread, with the context current. Throws CudaError.
  [[nodiscard]] std::uint32_t enqueue(CUstream stream);
  /// Opens the hold of this number. The holds may be opened in any order, each once.
  void open(std::uint32_t number) noexcept;

 private:
  const std::shared_ptr<CudaContext> context_;
  DriverHostMemory word_;    // an atomic number: all holds up to it are open
  std::uint32_t count_ = 0;  // device thread only
  CompletedPrefix opened_;
  std::atomic<std::uint32_t> last_opened_{0};  // the highest number
  std::atomic<bool> is_order_lost_{false};     // a number is missing in opened_
};

}  // namespace cox::detail
