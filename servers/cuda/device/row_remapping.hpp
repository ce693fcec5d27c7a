#pragma once

#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

namespace cox::detail {

/// The state of the rows of the GPUs' memory, from NVML: after an uncorrectable error a row waits to be remapped until
/// the GPU is reset. Any thread.
class RowRemapping {
 public:
  /// Of the library that the setting cuda.nvml names.
  static RowRemapping& of_process();

  explicit RowRemapping(std::string library);
  RowRemapping(const RowRemapping&) = delete;
  RowRemapping& operator=(const RowRemapping&) = delete;
  ~RowRemapping();

  /// Opens the GPU in NVML on a thread of its own, which takes about 10 ms, so that is_pending() need not wait for
  /// that. `bus_id`: as cuDeviceGetPCIBusId gives it.
  void prepare(const std::string& bus_id) noexcept;
  /// Whether rows of the GPU wait now; std::nullopt if that is not known (no NVML library, no GPU with remapping).
  [[nodiscard]] std::optional<bool> is_pending(const std::string& bus_id);

 private:
  struct Nvml;
  using NvmlDevice = void*;

  // The GPU in NVML; null: there is none.
  [[nodiscard]] std::shared_future<NvmlDevice> open(const std::string& bus_id, std::launch how);

  const std::unique_ptr<Nvml> nvml_;
  std::mutex mutex_;                                              // guards what follows
  std::map<std::string, std::shared_future<NvmlDevice>> opened_;  // by bus id
};

/// The bus id of the GPU with that ordinal, as cuDeviceGetPCIBusId gives it. Any thread. Throws CudaError.
[[nodiscard]] std::string bus_id_of(int ordinal);

}  // namespace cox::detail
