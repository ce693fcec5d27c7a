#pragma once

#include <coxswain/device_handle/base/shutdown.hpp>
#include <coxswain/servers/cuda/server/cuda_server.hpp>
#include <coxswain/tests/servers/contract/compute_backend.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace cox::test {

/// GPUs. Says what HostFleet says, which see.
class CudaFleet {
 public:
  using Client = CudaClient;
  using Backend = CudaBackend;
  [[nodiscard]] static std::string missing_devices(std::size_t count) { return Backend::missing_devices(count); }
  [[nodiscard]] static std::size_t max_devices() { return std::min<std::size_t>(enumerate_cuda_devices().size(), 6); }
  static constexpr bool late_rank_writes = true;  // a kernel that waits in a stream cannot be taken back
  static constexpr bool starts_when_given = true;
  static constexpr bool keeps_first_cause = false;
  static constexpr bool keeps_contents = false;
  static constexpr bool reports_once = false;
  static constexpr std::size_t slowness = 15;
  class Hold {
   public:
    void launch(const Client& client) {
      gate_.emplace(client);
      test::launch(client, gate_->hold());
    }
    void wait_until_entered() { gate_->wait_until_entered(); }
    void open() { gate_->open(); }

   private:
    std::optional<CudaBackend::Gate> gate_;
  };

  explicit CudaFleet(std::size_t devices) {
    keep_contexts();
    for (std::size_t i = 0; i < devices; ++i) {
      devices_.push_back({.type = cuda_device_type, .index = static_cast<std::uint16_t>(i)});
      clients_.push_back(Client::load(devices_.back()));
      CudaBackend::prepare(devices_.back());
    }
  }
  CudaFleet(const CudaFleet&) = delete;
  CudaFleet& operator=(const CudaFleet&) = delete;
  ~CudaFleet() {
    clients_.clear();
    shutdown_all();
  }

  [[nodiscard]] std::size_t size() const noexcept { return clients_.size(); }
  [[nodiscard]] Client& operator[](std::size_t rank) { return clients_[rank]; }
  [[nodiscard]] const std::vector<DeviceId>& devices() const noexcept { return devices_; }
  template <class F>
  void for_each(F&& f) {
    for (std::size_t rank = 0; rank < size(); ++rank) f(rank, clients_[rank]);
  }
  void reopen(std::size_t rank) {
    shutdown(devices_[rank]);
    clients_[rank] = Client::load(devices_[rank]);
    CudaBackend::prepare(devices_[rank]);
  }

 private:
  // Of all GPUs, until the process ends: closing and opening a device would take seconds for each test.
  static void keep_contexts();

  std::vector<DeviceId> devices_;
  std::vector<Client> clients_;
};

}  // namespace cox::test
