#pragma once

#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/device_handle/base/shutdown.hpp>
#include <coxswain/device_handle/base/stream_id.hpp>
#include <coxswain/tests/servers/contract/open_device.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <shared_mutex>
#include <vector>

namespace cox::fuzz {

inline constexpr std::size_t device_count = 4;

/// The devices that all programs of a moment share, and the orders that the library leaves to its users.
template <class Backend>
class World {
 public:
  using Client = typename Backend::Client;

  World(bool tight, bool has_faults) : tight_(tight), has_faults_(has_faults) {
    test::DeviceOptions options;
    options.devices = device_count;
    if (tight) options.memory = memory_of_tight();
    Backend::set_options(options);
    for (std::size_t device = 0; device < device_count; ++device) open(device);
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  ~World() {
    shutdown_all();
    Backend::reset_options();
  }

  [[nodiscard]] static DeviceId id(std::size_t device) {
    return {.type = Backend::device_type, .index = static_cast<std::uint16_t>(device)};
  }
  [[nodiscard]] bool tight() const noexcept { return tight_; }
  /// Calls may fail that the model expects to succeed.
  [[nodiscard]] bool has_faults() const noexcept { return has_faults_; }
  /// Bytes of the largest buffer.
  [[nodiscard]] std::size_t largest() const noexcept {
    return tight_ ? memory_of_tight() / 8 : std::size_t{256} << 10U;
  }

  /// Held shared for the length of an operation, alone where a device is shut down.
  [[nodiscard]] std::shared_mutex& life() noexcept { return life_; }
  /// A client of the device as it is open now, on a stream of its own. Under life().
  [[nodiscard]] Client client(std::size_t device) const {
    Client client = clients_[device];
    client.set_stream(StreamId::allocate());
    return client;
  }
  /// How often the device has been opened. Under life().
  [[nodiscard]] std::size_t epoch(std::size_t device) const noexcept { return epochs_[device]; }
  /// Shuts the device down and opens it again. Under life(), alone.
  ShutdownOutcome reopen(std::size_t device) {
    const ShutdownOutcome outcome = shutdown(id(device));
    open(device);
    return outcome;
  }

  /// Held while the ranks of a set, by bits, make their calls: all devices have the operations of one communicator in
  /// one order.
  [[nodiscard]] std::mutex& order_of(std::uint32_t set) noexcept { return orders_[set]; }
  /// Held alone while the two devices of a set make the calls of a transfer by hand, shared by to_client, which pairs
  /// its halves itself.
  [[nodiscard]] std::shared_mutex& transfers_of(std::uint32_t set) noexcept { return transfers_[set]; }

 private:
  static constexpr std::size_t memory_of_tight() {
    return Backend::min_memory * (Backend::min_memory < (std::size_t{1} << 20U) ? 32 : 4);
  }
  void open(std::size_t device) {
    Client client = Client::load(id(device));
    Backend::prepare(id(device));
    if (device < clients_.size()) {
      clients_[device] = std::move(client);
    } else {
      clients_.push_back(std::move(client));
    }
    ++epochs_[device];
  }

  const bool tight_;
  const bool has_faults_;
  std::shared_mutex life_;
  std::vector<Client> clients_;
  std::array<std::size_t, device_count> epochs_{};
  std::array<std::mutex, 1U << device_count> orders_;
  std::array<std::shared_mutex, 1U << device_count> transfers_;
};

}  // namespace cox::fuzz
