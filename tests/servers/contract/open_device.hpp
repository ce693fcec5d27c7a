#pragma once

#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/device_handle/base/shutdown.hpp>
#include <coxswain/device_handle/base/stream_id.hpp>
#include <coxswain/runtime/launch/cube_count.hpp>
#include <coxswain/runtime/launch/kernel_arguments.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace cox::test {

/// What the devices of one test are like.
struct DeviceOptions {
  std::size_t memory = std::size_t{1} << 30U;  ///< bytes of each device
  std::size_t pinned = std::size_t{1} << 28U;  ///< bytes for staging, of each device
  std::size_t threads = 2;                     ///< that run the streams, where those are threads
  std::uint16_t devices = 4;                   ///< where one can say how many there are
};

/// What a launch is given.
template <class Kernel>
struct Work {
  Kernel kernel;
  KernelArguments arguments{};
  CubeCount count = CubeCount::single();

  [[nodiscard]] Work with_count(CubeCount other) && {
    count = std::move(other);
    return std::move(*this);
  }
};

/// A device that is open for one test, with `options` in force. The kernels of the vocabulary are ready: loading one
/// waits for what runs, which may be held up by the test.
template <class Backend>
class OpenDevice {
 public:
  using Client = typename Backend::Client;

  explicit OpenDevice(const DeviceOptions& options = {}, std::uint16_t index = 0)
      : device_{.type = Backend::device_type, .index = index}, client_(open(options, device_)) {}
  OpenDevice(const OpenDevice&) = delete;
  OpenDevice& operator=(const OpenDevice&) = delete;
  ~OpenDevice() {
    shutdown(device_);
    Backend::reset_options();
  }

  [[nodiscard]] Client& client() noexcept { return client_; }
  [[nodiscard]] DeviceId device() const noexcept { return device_; }
  /// As errors name it.
  [[nodiscard]] std::string name() const { return device_.to_string(); }
  /// A client of the same device on a stream of its own.
  [[nodiscard]] Client on_new_stream() const {
    Client other = client_;
    other.set_stream(StreamId::allocate());
    return other;
  }

 private:
  static Client open(const DeviceOptions& options, DeviceId device) {
    Backend::set_options(options);
    Client client = Client::load(device);
    Backend::prepare(device);
    return client;
  }

  DeviceId device_;
  Client client_;
};

}  // namespace cox::test
