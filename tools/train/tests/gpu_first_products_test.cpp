// On two GPUs: the first product by cuBLASLt of 20 shapes on each, while small sums between both run without a pause.
// cuBLASLt loads code at the first product of a shape, for which the driver waits for running kernels; a sum whose peer
// is queued behind such a wait would never end. Skipped with fewer GPUs, or without cuBLASLt.

#include <cuda/cuda_backend.hpp>
#include <require.hpp>

#include <coxswain/device_handle/base/shutdown.hpp>
#include <coxswain/runtime/communication/communication_id.hpp>
#include <coxswain/servers/cuda/device/cuda_devices.hpp>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr std::size_t shapes = 20;
constexpr std::size_t between_waits = 32;  // sums that are queued at the same time
constexpr std::chrono::seconds patience{90};

cox::Handle filled(const cox::CudaClient& client, std::size_t count, float value) {
  return client.create(cox::Bytes::from_vector(std::vector<float>(count, value)));
}

/// What the sums have done so far.
struct Progress {
  std::atomic<std::size_t> count{0};
  std::atomic<bool> failed{false};
};

/// Sums between both GPUs until `done`. Returns their number.
std::size_t run_sums(const cox::CommunicationId& ranks, Progress& progress, const std::atomic<bool>& done) {
  std::vector<cox::CudaClient> clients;
  std::vector<cox::Handle> in;
  std::vector<cox::Handle> out;
  for (const cox::DeviceId device : ranks.devices()) {
    clients.push_back(cox::CudaClient::load(device));
    in.push_back(filled(clients.back(), 256, static_cast<float>(clients.size())));
    out.push_back(filled(clients.back(), 256, 0));
  }
  while (!done) {
    for (std::size_t i = 0; i < between_waits; ++i)
      for (std::size_t rank = 0; rank < clients.size(); ++rank)
        clients[rank].all_reduce(in[rank], out[rank], cox::ElementType::F32, ranks);
    for (const cox::CudaClient& client : clients) client.sync().get();
    progress.count += between_waits;
  }
  for (std::size_t rank = 0; rank < clients.size(); ++rank)
    for (const float sum : clients[rank].read_one(out[rank]).to_vector<float>()) require(sum == 3, "a sum is wrong");
  return progress.count;
}

/// The first products of all shapes on one GPU, as cox-train does them. Returns early if the sums fail.
void run_products(cox::DeviceId device, const Progress& sums) {
  const cox::CudaClient client = cox::CudaClient::load(device);
  train::MatrixProducts products(client, train::Precision::Float32);
  for (std::size_t i = 1; i <= shapes; ++i) {
    const train::Product shape{.m = 48 * i, .n = 16 * i + 32, .k = 64 * i, .b_transposed = i % 2 == 0};
    const cox::Handle a = filled(client, shape.m * shape.k, 1);
    const cox::Handle b = filled(client, shape.k * shape.n, 2);
    const cox::Handle out = filled(client, shape.m * shape.n, 0);
    for (const std::size_t before = sums.count; sums.count == before;) {  // until sums are running
      if (sums.failed) return;
      std::this_thread::yield();
    }
    require(products.multiply(client, out, a, b, nullptr, shape, std::source_location::current()),
            "cuBLASLt has no algorithm for a shape");
    for (const float value : client.read_one(out).to_vector<float>())
      require(value == 2 * static_cast<float>(shape.k), "a product is wrong");
  }
}

template <class T>
void wait_for(std::future<T>& result, const char* what, std::chrono::steady_clock::time_point end) {
  if (result.wait_until(end) == std::future_status::ready) return;
  std::fprintf(stderr, "%s did not end within %lld s\n", what, static_cast<long long>(patience.count()));
  std::_Exit(1);  // its threads cannot be joined
}

}  // namespace

int main() {
  const std::size_t gpus = cox::enumerate_cuda_devices().size();
  std::string why_not = gpus == 0 ? cox::why_no_cuda() : "needs two GPUs";
  if (gpus < 2 || train::cublaslt::find(why_not) == nullptr) {
    std::printf("skipped: %s\n", why_not.c_str());
    return 0;
  }
  const auto begin = std::chrono::steady_clock::now();
  const cox::CommunicationId ranks{{cox::cuda_device_type, 0}, {cox::cuda_device_type, 1}};
  Progress progress;
  std::atomic<bool> done{false};
  auto sums = std::async(std::launch::async, [&] {
    try {
      return run_sums(ranks, progress, done);
    } catch (...) {
      progress.failed = true;
      throw;
    }
  });
  std::vector<std::future<void>> products;
  for (const cox::DeviceId device : ranks.devices())
    products.push_back(std::async(std::launch::async, [&, device] { run_products(device, progress); }));
  for (std::future<void>& one : products) {
    wait_for(one, "a GPU's first products", begin + patience);
    one.get();
  }
  done = true;
  wait_for(sums, "the sums", begin + patience);
  const std::size_t count = sums.get();  // throws the error of a sum
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::printf("%zu first products on each of 2 GPUs during %zu sums, %.1f s\n", shapes, count, seconds);
  cox::shutdown_all();
  std::puts("ok");
  return 0;
}
