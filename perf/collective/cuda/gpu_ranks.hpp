#pragma once

#include <coxswain/device_handle/base/shutdown.hpp>
#include <coxswain/servers/cuda/server/cuda_server.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace cox::perf {

/// The first GPUs, open as long as this lives.
struct GpuRanks {
  explicit GpuRanks(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      devices.push_back({.type = cuda_device_type, .index = static_cast<std::uint16_t>(i)});
      clients.push_back(CudaClient::load(devices.back()));
    }
  }
  GpuRanks(const GpuRanks&) = delete;
  GpuRanks& operator=(const GpuRanks&) = delete;
  ~GpuRanks() {
    clients.clear();
    shutdown_all();
  }

  std::vector<DeviceId> devices;
  std::vector<CudaClient> clients;
};

}  // namespace cox::perf
