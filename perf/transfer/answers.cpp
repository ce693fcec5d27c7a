#include <coxswain/perf/transfer/answers.hpp>

#include <coxswain/perf/harness/spread.hpp>
#include <coxswain/perf/harness/stopwatch.hpp>

#include <atomic>
#include <future>
#include <thread>
#include <vector>

namespace cox::perf {
namespace {

std::vector<double> ask_until(const CudaClient& client, const std::atomic<bool>& over) {
  std::vector<double> waits;
  while (!over.load(std::memory_order_relaxed)) {  // orders nothing: the future does
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    const Stopwatch watch;
    client.device_handle().submit_blocking([](CudaServer&) {});
    waits.push_back(watch.microseconds());
  }
  return waits;
}

}  // namespace

Sample answers_during(const CudaClient& client, std::chrono::milliseconds duration,
                      const std::function<void()>& transfer) {
  transfer();  // all is warm
  std::atomic<bool> over{false};
  auto asking = std::async(std::launch::async, [&] { return ask_until(client, over); });
  const auto end = std::chrono::steady_clock::now() + duration;
  try {
    while (std::chrono::steady_clock::now() < end) transfer();
  } catch (...) {
    over = true;
    throw;
  }
  over = true;
  std::vector<double> waits = asking.get();
  return {quantile(waits, 0.5), quantile(waits, 0.99), quantile(waits, 1)};
}

}  // namespace cox::perf
