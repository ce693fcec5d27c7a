#pragma once

#include <coxswain/device_handle/base/shutdown.hpp>
#include <coxswain/runtime/config/process_settings.hpp>
#include <coxswain/servers/host/server/host_server.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace cox::perf {

/// Host devices that are open as long as this lives.
class HostRanks {
 public:
  explicit HostRanks(std::size_t count) {
    HostOptions options;
    options.device_count = static_cast<std::uint16_t>(count);
    set_host_options(options);
    for (std::size_t i = 0; i < count; ++i) {
      devices.push_back({.type = host_device_type, .index = static_cast<std::uint16_t>(i)});
      clients.push_back(HostClient::load(devices.back()));
    }
  }
  HostRanks(const HostRanks&) = delete;
  HostRanks& operator=(const HostRanks&) = delete;
  ~HostRanks() {
    clients.clear();
    shutdown_all();
    reset_host_options();
  }

  /// A buffer of that many bytes on every device, all zero.
  [[nodiscard]] std::vector<Handle> buffers(std::size_t bytes) const {
    std::vector<Handle> handles;
    for (const HostClient& client : clients) handles.push_back(client.create(Bytes::zeroed(bytes)));
    return handles;
  }
  /// Blocks until all that was queued on the devices has been done.
  void sync() const {
    std::vector<Future<void>> done;
    for (const HostClient& client : clients) {
      client.sync_collective();
      done.push_back(client.sync());
    }
    for (Future<void>& future : done) future.get();
  }

  std::vector<DeviceId> devices;
  std::vector<HostClient> clients;
};

}  // namespace cox::perf
