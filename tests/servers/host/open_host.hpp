#pragma once

#include <coxswain/device_handle/base/shutdown.hpp>
#include <coxswain/servers/host/server/host_server.hpp>

#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace cox::test {

/// A host device that is open for one test, with `options` in force.
class OpenHost {
 public:
  explicit OpenHost(HostOptions options = {}, std::uint16_t index = 0)
      : device_{.type = host_device_type, .index = index}, client_(open(options, device_)) {}
  OpenHost(const OpenHost&) = delete;
  OpenHost& operator=(const OpenHost&) = delete;
  ~OpenHost() {
    shutdown(device_);
    reset_host_options();
  }

  [[nodiscard]] HostClient& client() noexcept { return client_; }
  [[nodiscard]] DeviceId device() const noexcept { return device_; }
  /// A client of the same device on a stream of its own.
  [[nodiscard]] HostClient on_new_stream() const {
    HostClient other = client_;
    other.set_stream(StreamId::allocate());
    return other;
  }

 private:
  static HostClient open(const HostOptions& options, DeviceId device) {
    set_host_options(options);
    return HostClient::load(device);
  }

  DeviceId device_;
  HostClient client_;
};

/// Holds a kernel up until the test lets it go on. Copies of the kernel keep what they wait for.
class Gate {
 public:
  /// A kernel with `buffers` buffers that says it has been entered, waits for open(), then calls `then`.
  [[nodiscard]] HostKernel kernel(std::size_t buffers, HostKernel::Function then = [](const KernelContext&) {}) {
    return {"gate", CubeDim::single(), buffers, [state = state_, then = std::move(then)](const KernelContext& context) {
              state->entered.set_value();
              state->opened.wait();
              then(context);
            }};
  }
  void wait_until_entered() { state_->entered.get_future().wait(); }
  void open() { state_->open.set_value(); }

 private:
  struct State {
    std::promise<void> entered;
    std::promise<void> open;
    std::shared_future<void> opened = open.get_future().share();
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

/// Element i of buffer 0 becomes `scalar 0` times itself plus `scalar 1`.
inline HostKernel multiply_add() {
  return {"multiply_add", CubeDim::of_1d(32), 1, [](const KernelContext& context) {
            const auto data = context.buffer<std::uint32_t>(0);
            const auto factor = context.scalar<std::uint32_t>(0);
            const auto summand = context.scalar<std::uint32_t>(1);
            context.for_each_unit([&](std::uint64_t i) {
              if (i < data.size()) data[i] = data[i] * factor + summand;
            });
          }};
}

/// Buffer 1 becomes a copy of buffer 0.
inline HostKernel copy_kernel() {
  return {"copy", CubeDim::single(), 2, [](const KernelContext& context) {
            const auto from = context.buffer<const std::uint32_t>(0);
            const auto to = context.buffer<std::uint32_t>(1);
            for (std::size_t i = 0; i < to.size(); ++i) to[i] = from[i];
          }};
}

/// Every element of buffer 0 becomes scalar 0.
inline HostKernel fill_kernel() {
  return {"fill", CubeDim::single(), 1, [](const KernelContext& context) {
            for (auto& element : context.buffer<std::uint32_t>(0)) element = context.scalar<std::uint32_t>(0);
          }};
}

[[nodiscard]] inline std::vector<std::uint32_t> numbers(const Bytes& bytes) { return bytes.to_vector<std::uint32_t>(); }

[[nodiscard]] inline Handle upload(const HostClient& client, const std::vector<std::uint32_t>& values) {
  return client.create(Bytes::copy_of(values));
}

}  // namespace cox::test
