#pragma once

#include <coxswain/servers/host/host_server.hpp>
#include <coxswain/tests/tools/flaw_period.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
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

/// The library with compute clients that go wrong.
template <class Client>
struct FlawedComputeBackend {
  template <class S>
  using Handle = DeviceHandle<S>;
  using Compute = Client;
};

}  // namespace cox::stress
