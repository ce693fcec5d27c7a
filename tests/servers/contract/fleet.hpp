#pragma once

// What the contract of communicators runs on: some devices of one kind, open for one test. Titles end in " - HostFleet"
// and " - CudaFleet"; ctest gives the latter the label gpu.

#include <coxswain/device_handle/base/shutdown.hpp>
#include <coxswain/runtime/config/process_settings.hpp>
#include <coxswain/servers/host/server/host_server.hpp>
#include <coxswain/tests/servers/contract/compute_backend.hpp>
#include <coxswain/tests/servers/host/open_host.hpp>

#if COX_CUDA_TESTS
#include <coxswain/tests/servers/contract/cuda_fleet.hpp>
#endif

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace cox::test {

/// Host devices.
class HostFleet {
 public:
  using Client = HostClient;
  using Backend = HostBackend;
  [[nodiscard]] static std::string missing_devices(std::size_t count) { return Backend::missing_devices(count); }
  /// At most so many devices.
  [[nodiscard]] static std::size_t max_devices() noexcept { return 6; }
  /// What a rank that comes late to an operation which was given up finds: its memory as it was.
  static constexpr bool late_rank_writes = false;
  /// Whether an operation has started when its device has been given it, though the stream has not come to it.
  static constexpr bool starts_when_given = false;
  /// Whether memory that several failed operations should have written keeps the cause of the first in the order of the
  /// program, and not of the one whose failure is known first.
  static constexpr bool keeps_first_cause = true;
  /// Whether no operation runs over poisoned memory, so that what is accepted is what it was.
  static constexpr bool keeps_contents = true;
  /// Whether a launch that fails on its own is not reported again when a collective before it fails.
  static constexpr bool reports_once = true;
  /// How many times longer than here it takes to open communicators.
  static constexpr std::size_t slowness = 1;
  /// Holds a device's stream up until it is opened: launch(client) it, wait_until_entered(), open().
  class Hold {
   public:
    Hold() = default;
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;
    /// Opened at the latest: a test that has failed ends.
    ~Hold() {
      if (closed_) gate_.open();
    }
    void launch(const Client& client) {
      client.launch(gate_.kernel(0), CubeCount::Static{1, 1, 1}, {});
      closed_ = true;
    }
    void wait_until_entered() { gate_.wait_until_entered(); }
    void open() {
      closed_ = false;
      gate_.open();
    }

   private:
    Gate gate_;
    bool closed_ = false;
  };

  explicit HostFleet(std::size_t devices) {
    HostOptions options;
    options.device_count = static_cast<std::uint16_t>(devices);
    set_host_options(options);
    for (std::size_t i = 0; i < devices; ++i) {
      devices_.push_back({.type = host_device_type, .index = static_cast<std::uint16_t>(i)});
      clients_.push_back(Client::load(devices_.back()));
    }
  }
  HostFleet(const HostFleet&) = delete;
  HostFleet& operator=(const HostFleet&) = delete;
  ~HostFleet() {
    clients_.clear();
    shutdown_all();
    reset_host_options();
  }

  [[nodiscard]] std::size_t size() const noexcept { return clients_.size(); }
  [[nodiscard]] Client& operator[](std::size_t rank) { return clients_[rank]; }
  [[nodiscard]] const std::vector<DeviceId>& devices() const noexcept { return devices_; }
  /// Calls `f(rank, client)` for each, in order.
  template <class F>
  void for_each(F&& f) {
    for (std::size_t rank = 0; rank < size(); ++rank) f(rank, clients_[rank]);
  }
  /// The device is shut down and opened again.
  void reopen(std::size_t rank) {
    shutdown(devices_[rank]);
    clients_[rank] = Client::load(devices_[rank]);
  }

 private:
  std::vector<DeviceId> devices_;
  std::vector<Client> clients_;
};

/// The implementations of the contract.
#if COX_CUDA_TESTS
#define COX_FLEETS HostFleet, CudaFleet
#else
#define COX_FLEETS HostFleet
#endif

/// Ends the test, saying so, where there are fewer devices of that kind.
#define COX_REQUIRE_FLEET(Fleet, count) COX_REQUIRE_DEVICES(Fleet, count)

template <class T, class Client>
[[nodiscard]] Handle to_device(const Client& client, const std::vector<T>& values) {
  return client.create(Bytes::copy_of(values));
}
template <class T, class Client>
[[nodiscard]] std::vector<T> from_device(const Client& client, const Handle& handle) {
  return client.read_one(handle).template to_vector<T>();
}

}  // namespace cox::test
