#pragma once

#include <coxswain/device_handle/base/shutdown.hpp>
#include <coxswain/perf/cuda/raw_stream.hpp>
#include <coxswain/servers/cuda/server/cuda_server.hpp>

#include <cstdint>

namespace cox::perf {

/// A GPU both ways: through a client, and through a stream of the driver in the same context. On one thread.
class OpenGpu {
 public:
  explicit OpenGpu(std::uint16_t index = 0)
      : device_{.type = cuda_device_type, .index = index}, client_(CudaClient::load(device_)), raw_(index) {}
  OpenGpu(const OpenGpu&) = delete;
  OpenGpu& operator=(const OpenGpu&) = delete;
  ~OpenGpu() { shutdown(device_); }

  [[nodiscard]] const CudaClient& client() const noexcept { return client_; }
  [[nodiscard]] const RawStream& raw() const noexcept { return raw_; }
  /// Where the driver has the memory of a handle. Blocks until its allocation is done.
  [[nodiscard]] CUdeviceptr address_of(const Handle& handle) const {
    return client_.get_resource(handle).resource.address;
  }
  /// Blocks until the work of the calling thread is done. Throws what has failed of it.
  void finish() const { client_.sync().get(); }

 private:
  DeviceId device_;
  CudaClient client_;
  RawStream raw_;
};

}  // namespace cox::perf
