// Random collectives and transfers over random sets of devices: the ranks get the same bits whether their devices
// belong to one process or to several.

#include <coxswain/tests/programs/world_processes.hpp>

#include <coxswain/collectives/world/world.hpp>
#include <coxswain/device_handle/base/shutdown.hpp>
#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/servers/host/server/host_server.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace {

using cox::ElementType;

constexpr std::size_t most = 20'000;  // elements of a buffer of each rank; some operations are larger than a share

struct Rank {
  cox::HostClient client;
  cox::Handle input;
  cox::Handle output;
};

// The same on all processes: `ranks` are those of this process, by their numbers in the world.
void run(std::uint64_t seed, const std::vector<cox::DeviceId>& devices, std::map<std::size_t, Rank>& ranks) {
  std::mt19937_64 random(seed);
  const auto below = [&](std::size_t bound) { return static_cast<std::size_t>(random() % bound); };
  for (int step = 0; step < 60; ++step) {
    std::vector<std::size_t> members;
    for (std::size_t rank = 0; rank < devices.size(); ++rank)
      if (below(4) != 0) members.push_back(rank);
    if (members.size() < 2) continue;
    std::vector<cox::DeviceId> chosen;
    for (const std::size_t member : members) chosen.push_back(devices[member]);
    const cox::CommunicationId group(chosen);
    const std::size_t count = below(5) == 0 ? most / devices.size() : 1 + below(100);
    const std::size_t kind = below(8);
    const std::size_t root = below(members.size());
    const std::size_t other = (root + 1 + below(members.size() - 1)) % members.size();
    const bool swaps = below(2) == 0;
    for (std::size_t place = 0; place < members.size(); ++place) {
      const auto found = ranks.find(members[place]);
      if (found == ranks.end()) continue;
      auto& [client, input, output] = found->second;
      const auto part = [&](const cox::Handle& of, std::size_t elements) {
        return of.offset_end(of.size_in_used() - elements * sizeof(float));
      };
      const std::size_t all = count * members.size();
      switch (kind) {
        case 0: client.all_reduce(part(input, count), part(output, count), ElementType::F32, group); break;
        case 1:
          client.reduce(part(input, count), part(output, count), ElementType::F32, group, cox::ReduceOperation::Sum,
                        chosen[root]);
          break;
        case 2: client.broadcast(part(input, count), part(output, count), ElementType::F32, group, chosen[root]); break;
        case 3: client.all_gather(part(input, count), part(output, all), ElementType::F32, group); break;
        case 4: client.reduce_scatter(part(input, all), part(output, count), ElementType::F32, group); break;
        case 5: client.all_to_all(part(input, all), part(output, all), ElementType::F32, group); break;
        case 6: client.barrier(group); break;
        default:
          if (place == root) client.send(part(input, count), ElementType::F32, chosen[other]);
          if (place == other) client.receive(part(output, count), ElementType::F32, chosen[root]);
      }
    }
    if (swaps)
      for (auto& [number, rank] : ranks) std::swap(rank.input, rank.output);
  }
}

std::uint64_t hash(const std::vector<float>& values) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const float value : values) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    hash = (hash ^ bits) * 0x100000001b3;
  }
  return hash;
}

int work(std::size_t own_devices, std::uint64_t seeds) {
  std::vector<cox::DeviceId> own;
  for (std::size_t i = 0; i < own_devices; ++i) own.push_back({cox::host_device_type, static_cast<std::uint16_t>(i)});
  cox::World world = cox::World::join(own);
  const std::vector<cox::DeviceId> devices = world.devices(cox::host_device_type);
  std::map<std::size_t, Rank> ranks;
  for (std::size_t i = 0; i < own_devices; ++i) {
    const std::size_t number = world.process() * own_devices + i;
    const auto client = cox::HostClient::load(own[i]);
    const auto filled = [&](float scale) {
      std::vector<float> values(most * devices.size());
      for (std::size_t at = 0; at < values.size(); ++at)
        values[at] = scale / (static_cast<float>(at % 977) + static_cast<float>(number) + 1.3F);
      return client.create(cox::Bytes::from_vector(std::move(values)));
    };
    ranks.emplace(number, Rank{client, filled(1.0F), filled(-3.0F)});
  }
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) run(seed, devices, ranks);
  for (auto& [number, rank] : ranks) {
    rank.client.sync().get();
    std::printf("rank %zu: %016llx %016llx\n", number,
                static_cast<unsigned long long>(hash(rank.client.read_one(rank.input).to_vector<float>())),
                static_cast<unsigned long long>(hash(rank.client.read_one(rank.output).to_vector<float>())));
  }
  std::fflush(stdout);
  ranks.clear();
  world.leave();
  return cox::shutdown_all() == cox::ShutdownOutcome::Drained ? 0 : 1;
}

// The output of all processes, sorted.
bool collect(std::size_t processes, std::size_t devices, const std::string& seeds, std::vector<std::string>& lines) {
  cox::test::WorldProcesses world(processes, {"work", std::to_string(devices), seeds},
                                  {"COX_HOST_DEVICES=" + std::to_string(devices)});
  bool right = true;
  for (std::size_t process = 0; process < processes; ++process) {
    const int code = world.wait(process);
    const std::string output = world.output(process);
    if (code != 0) {
      std::fprintf(stderr, "process %zu of %zu ended with %d:\n%s\n", process, processes, code, output.c_str());
      right = false;
    }
    for (std::size_t begin = 0, end = 0; (end = output.find('\n', begin)) != std::string::npos; begin = end + 1)
      if (output.compare(begin, 5, "rank ") == 0) lines.push_back(output.substr(begin, end - begin));
  }
  std::ranges::sort(lines);
  return right;
}

}  // namespace

int main(int count, char** arguments) {
  if (count > 1) {
    try {
      return work(std::stoul(arguments[2]), std::stoull(arguments[3]));
    } catch (...) {
      std::fprintf(stderr, "%s\n", cox::describe(std::current_exception()).c_str());
      return 2;
    }
  }
  const std::string seeds = "10";
  std::vector<std::string> expected;
  std::vector<std::string> two;
  std::vector<std::string> four;
  if (!collect(1, 4, seeds, expected) || !collect(2, 2, seeds, two) || !collect(4, 1, seeds, four)) return 1;
  if (expected.size() == 4 && two == expected && four == expected) return 0;
  for (const auto* lines : {&expected, &two, &four}) {
    for (const std::string& line : *lines) std::fprintf(stderr, "%s\n", line.c_str());
    std::fprintf(stderr, "\n");
  }
  return 1;
}
