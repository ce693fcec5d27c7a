#pragma once

#include <coxswain/device_handle/base/shutdown.hpp>
#include <coxswain/device_handle/handle/device_handle.hpp>
#include <coxswain/servers/cuda/server/cuda_server.hpp>
#include <coxswain/tests/fake_cuda/fake_cuda.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <latch>
#include <memory>
#include <string>
#include <vector>

namespace cox::test {

/// The stand-ins for the CUDA driver, NVRTC and NCCL, as if nothing had happened yet, with the kernels below and those
/// of small collectives. Devices are shut down at the end.
class FakeGpus {
 public:
  FakeGpus();
  FakeGpus(const FakeGpus&) = delete;
  FakeGpus& operator=(const FakeGpus&) = delete;
  ~FakeGpus();

  [[nodiscard]] static DeviceId device(std::uint16_t index) { return {.type = cuda_device_type, .index = index}; }
  /// A client of the device, on a stream of its own.
  [[nodiscard]] static CudaClient client(std::uint16_t index = 0) {
    CudaClient made = CudaClient::load(device(index));
    made.set_stream(StreamId::allocate());
    return made;
  }
  /// All that was submitted to the device so far has been run by its thread.
  static void pass(std::uint16_t index) {
    DeviceHandle<CudaServer>::get(device(index)).submit_blocking([](CudaServer&) {});
  }

  /// Adds a number to what append() has seen. `options` but for the parameters.
  static void append(const CudaClient& client, const Handle& buffer, std::uint32_t number);
  static void append(const CudaClient& client, const Handle& buffer, std::uint32_t number, CudaKernelOptions options);
  /// The same, with as many cubes as `cubes` says when it is its turn: the launch is issued when the device has come so
  /// far. It also writes `buffer`, as far as the order of streams goes.
  static void append_dynamic(const CudaClient& client, const Handle& cubes, const Handle& buffer, std::uint32_t number);
  /// Streams are given their turn in the order in which the driver was given their work.
  void run_in_order();
  /// Launches the kernel of that name in `fake`, which takes a buffer.
  static void launch(const CudaClient& client, const char* name, CubeCount cubes, const Handle& buffer);
  /// Runs until release().
  static void hold(const CudaClient& client, const Handle& buffer) {
    launch(client, "hold", CubeCount::single(), buffer);
  }
  void release() noexcept { released_.store(true); }
  /// The numbers of append(), in the order in which the kernels ran.
  [[nodiscard]] std::vector<std::uint32_t> appended();
  /// What the driver has made that has not been given back.
  [[nodiscard]] int live();
  /// As test::undestroyed_objects.
  [[nodiscard]] std::string undestroyed_objects();
  void fail_after(int calls);
  /// From then on all calls fail, until this goes: the GPUs of the process are lost.
  void fault_after(int calls);
  [[nodiscard]] bool faulted();
  [[nodiscard]] bool has_failed();
  /// The function that has failed; null: none. None will any more.
  const char* stop_failing();

  /// How often NCCL has created communicators so far; 0 if the process has not opened it.
  [[nodiscard]] static std::size_t nccl_creations();

  /// The stand-ins are what the library takes for the driver and the others from now on. Before anything asks for them.
  static FakeCuda& find();

  FakeCuda& fake;

 private:
  std::vector<std::uint32_t> appended_;  // under the stand-in's lock
  std::atomic<bool> released_{false};
};

/// Calls what may throw, and remembers whether anything did.
class Attempts {
 public:
  template <class What>
  void operator()(const What& what) {
    try {
      what();
    } catch (const std::exception& error) {
      said_ += std::string(error.what()) + "\n";
    }
  }
  [[nodiscard]] bool failed() const noexcept { return !said_.empty(); }
  /// What was thrown, a line for each.
  [[nodiscard]] const std::string& said() const noexcept { return said_; }

 private:
  std::string said_;
};

/// Keeps the thread of a device from going on while this lives.
class BusyDevice {
 public:
  explicit BusyDevice(std::uint16_t index) {
    DeviceHandle<CudaServer>::get(FakeGpus::device(index)).submit([over = over_](CudaServer&) { over->wait(); });
  }
  BusyDevice(const BusyDevice&) = delete;
  BusyDevice& operator=(const BusyDevice&) = delete;
  ~BusyDevice() { over_->count_down(); }

 private:
  std::shared_ptr<std::latch> over_ = std::make_shared<std::latch>(1);
};

}  // namespace cox::test
