#pragma once

#include <coxswain/servers/host/server/host_server.hpp>
#include <coxswain/tests/tools/flaw_period.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace cox::stress {

/// One byte of a read is wrong now and then.
class CorruptingClient : public HostClient {
 public:
  static CorruptingClient load(DeviceId device) { return CorruptingClient(HostClient::load(device)); }

  [[nodiscard]] Bytes read_one(const Handle& handle) const {
    Bytes bytes = HostClient::read_one(handle);
    if (++*calls_ % flaw_period == 0) bytes.data()[bytes.size() / 2] ^= std::byte{1};
    return bytes;
  }

 private:
  explicit CorruptingClient(HostClient client)
      : HostClient(std::move(client)), calls_(std::make_shared<std::atomic<std::uint64_t>>(0)) {}

  std::shared_ptr<std::atomic<std::uint64_t>> calls_;
};

/// A launch is forgotten now and then.
class ForgetfulClient : public HostClient {
 public:
  static ForgetfulClient load(DeviceId device) { return ForgetfulClient(HostClient::load(device)); }

  void launch(HostKernel kernel, CubeCount count, KernelArguments arguments,
              ExecutionMode mode = ExecutionMode::Checked) const {
    if (++*calls_ % flaw_period != 0)
      HostClient::launch(std::move(kernel), std::move(count), std::move(arguments), mode);
  }

 private:
  explicit ForgetfulClient(HostClient client)
      : HostClient(std::move(client)), calls_(std::make_shared<std::atomic<std::uint64_t>>(0)) {}

  std::shared_ptr<std::atomic<std::uint64_t>> calls_;
};

/// One element of one rank's all_reduce is wrong now and then.
class SpoilingClient : public HostClient {
 public:
  static SpoilingClient load(DeviceId device) { return SpoilingClient(HostClient::load(device)); }

  void all_reduce(const Handle& source, const Handle& destination, ElementType type, const CommunicationId& devices,
                  ReduceOperation operation) const {
    HostClient::all_reduce(source, destination, type, devices, operation);
    if (++*calls_ % flaw_period != 0) return;
    HostClient beside = *this;
    beside.set_stream(StreamId::allocate());
    const HostKernel spoil("spoil", CubeDim::single(), 1, [](const KernelContext& context) {
      const auto bytes = context.buffer<std::uint8_t>(0);
      bytes[bytes.size() / 2] ^= 1;
    });
    beside.launch(spoil, CubeCount::single(), KernelArguments{}.with_buffer(destination));
  }

 private:
  explicit SpoilingClient(HostClient client)
      : HostClient(std::move(client)), calls_(std::make_shared<std::atomic<std::uint64_t>>(0)) {}

  std::shared_ptr<std::atomic<std::uint64_t>> calls_;
};

/// Now and then one device asks for two all_reduces in the wrong order.
class ReorderingClient : public HostClient {
 public:
  static ReorderingClient load(DeviceId device) { return ReorderingClient(HostClient::load(device)); }

  void all_reduce(const Handle& source, const Handle& destination, ElementType type, const CommunicationId& devices,
                  ReduceOperation operation) const {
    HostClient pinned = *this;
    pinned.set_stream(stream_id());
    auto call = [=] { pinned.all_reduce(source, destination, type, devices, operation); };
    const std::lock_guard lock(state_->mutex);
    const auto held = state_->held.find(devices);
    if (held == state_->held.end() && device_id().index == 0 && ++state_->calls % flaw_period == 0) {
      state_->held[devices] = std::move(call);
      return;
    }
    call();
    if (held == state_->held.end()) return;
    held->second();
    state_->held.erase(held);
  }

 private:
  struct State {
    std::mutex mutex;
    std::uint64_t calls = 0;
    std::map<CommunicationId, std::function<void()>> held;
  };
  explicit ReorderingClient(HostClient client) : HostClient(std::move(client)), state_(std::make_shared<State>()) {}

  std::shared_ptr<State> state_;
};

/// An all_reduce does not end until it is let go.
class HangingClient : public HostClient {
 public:
  static HangingClient load(DeviceId device) { return HangingClient(HostClient::load(device)); }
  static void let_go() {
    let_go_ = true;
    let_go_.notify_all();
  }

  void all_reduce(const Handle& source, const Handle& destination, ElementType type, const CommunicationId& devices,
                  ReduceOperation operation) const {
    if (++*calls_ == flaw_period)
      launch({"hang", CubeDim::single(), 0, [](const KernelContext&) { let_go_.wait(false); }}, CubeCount::single(),
             {});
    HostClient::all_reduce(source, destination, type, devices, operation);
  }

 private:
  explicit HangingClient(HostClient client)
      : HostClient(std::move(client)), calls_(std::make_shared<std::atomic<std::uint64_t>>(0)) {}

  static inline std::atomic<bool> let_go_{false};
  std::shared_ptr<std::atomic<std::uint64_t>> calls_;
};

/// The library with compute clients that go wrong.
template <class Client>
struct FlawedComputeBackend {
  template <class S>
  using Handle = DeviceHandle<S>;
  using Compute = Client;
};

}  // namespace cox::stress
