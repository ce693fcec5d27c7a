#include <coxswain/perf/world/world_sums.hpp>

#include <coxswain/collectives/world/world.hpp>
#include <coxswain/device_handle/base/shutdown.hpp>
#include <coxswain/perf/harness/spread.hpp>
#include <coxswain/perf/harness/stopwatch.hpp>
#include <coxswain/servers/host/server/host_server.hpp>

#include <cstdint>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

namespace cox::perf {
namespace {

constexpr std::size_t devices_of_all = 2;

// One device, on a thread of its own.
class Rank {
 public:
  Rank(DeviceId device, CommunicationId all, std::size_t bytes)
      : client_(HostClient::load(device)), all_(std::move(all)), values_(client_.create(Bytes::zeroed(bytes))) {}

  void submit() const { client_.all_reduce(values_, values_, ElementType::F32, all_); }
  void wait() const {
    client_.sync_collective();
    client_.sync().get();
  }

 private:
  HostClient client_;
  CommunicationId all_;
  Handle values_;
};

// Calls `body` for each local device, on a thread of its own; gives what it returned for the first one.
Sample on_each_device(PlaceOfSample place, std::size_t bytes, const std::function<Sample(const Rank&)>& body) {
  const std::size_t local = devices_of_all / place.processes;
  HostOptions options;
  options.device_count = static_cast<std::uint16_t>(local);
  set_host_options(options);
  std::vector<DeviceId> devices;
  for (std::uint16_t index = 0; index < local; ++index) devices.push_back({.type = host_device_type, .index = index});
  World world = World::join(devices);
  const CommunicationId all(world.devices(host_device_type));
  Sample first;
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < local; ++i)
    threads.emplace_back([&, i] {
      const Rank rank(devices[i], all, bytes);
      Sample sample = body(rank);
      if (i == 0) first = std::move(sample);
    });
  for (std::thread& thread : threads) thread.join();
  shutdown_all();
  world.leave();
  return first;
}

}  // namespace

Sample sums_one_at_a_time(PlaceOfSample place, std::size_t bytes, std::size_t times) {
  return on_each_device(place, bytes, [=](const Rank& rank) -> Sample {
    const auto once = [&] {
      rank.submit();
      rank.wait();
    };
    for (std::size_t i = 0; i < times / 10 + 1; ++i) once();
    std::vector<double> taken = microseconds_of_each(times, once);
    return {quantile(taken, 0.5), quantile(taken, 0.99)};
  });
}

Sample sums_in_a_stream(PlaceOfSample place, std::size_t bytes, std::size_t operations, std::size_t times) {
  return on_each_device(place, bytes, [=](const Rank& rank) -> Sample {
    const auto once = [&] {
      for (std::size_t i = 0; i < operations; ++i) rank.submit();
      rank.wait();
    };
    once();
    const Stopwatch watch;
    for (std::size_t i = 0; i < times; ++i) once();
    return {watch.microseconds() / static_cast<double>(times * operations)};
  });
}

}  // namespace cox::perf
