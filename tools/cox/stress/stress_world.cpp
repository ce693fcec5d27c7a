#include <coxswain/tools/cox/stress/stress_world.hpp>

#include <coxswain/collectives/discovery/discover.hpp>
#include <coxswain/servers/host/server/host_server.hpp>
#include <coxswain/tools/cox/stress/random.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <functional>
#include <string>

namespace cox::stress {
namespace {

constexpr DeviceId summary_device{host_device_type, 0};  // the device of a process that exchanges its summary

}  // namespace

std::unique_ptr<StressWorld> StressWorld::join(const std::vector<DeviceId>& devices) {
  if (discover().processes == 1) return nullptr;
  std::vector<DeviceId> all = devices;
  if (devices.front().type != host_device_type) all.push_back(summary_device);
  return std::unique_ptr<StressWorld>(new StressWorld(World::join(all), devices.front().type));
}

std::uint64_t StressWorld::seed() const {
  const WorldProcess& first = world_.processes().front();
  return Random::derived(std::hash<std::string>()(first.host), first.pid);
}

SharedRun StressWorld::shared_run() {
  SharedRun run{.devices = world_.devices(type_), .process = world_.process()};
  const auto own = std::ranges::find(run.devices, world_.process() + 1, &DeviceId::process);
  run.first_own = static_cast<std::size_t>(own - run.devices.begin());
  run.exchange = [this](const ProcessSummary& summary) { return exchange(summary); };
  return run;
}

// By an all_gather of one host device of each process.
std::vector<ProcessSummary> StressWorld::exchange(const ProcessSummary& own) const {
  using Words = std::array<std::uint64_t, sizeof(ProcessSummary) / sizeof(std::uint64_t)>;
  std::vector<DeviceId> first_of_each;
  for (const WorldProcess& process : world_.processes())
    first_of_each.push_back(*std::ranges::find(process.devices, host_device_type, &DeviceId::type));
  const HostClient client = HostClient::load(summary_device);
  const Handle mine = client.create(Bytes::copy_of(std::bit_cast<Words>(own)));
  const Handle all = client.empty(first_of_each.size() * sizeof(ProcessSummary));
  client.all_gather(mine, all, ElementType::U64, CommunicationId(first_of_each));
  const Bytes bytes = client.read_one(all);
  std::vector<ProcessSummary> summaries(first_of_each.size());
  std::memcpy(summaries.data(), bytes.span().data(), summaries.size() * sizeof(ProcessSummary));
  return summaries;
}

}  // namespace cox::stress
