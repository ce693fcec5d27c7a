#pragma once

// Random collectives and transfers over random sets of GPUs. Reductions on real GPUs are maxima and minima, which have
// the same bits in any order; the stand-ins add in the order of ranks.

#include <coxswain/tests/programs/world_gpus.hpp>

#include <coxswain/collectives/world/world.hpp>
#include <coxswain/device_handle/base/shutdown.hpp>
#include <coxswain/device_handle/base/task_error.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace cox::test {

constexpr std::size_t most_elements = 20'000;  // of a buffer of each rank

struct GpuRank {
  CudaClient client;
  Handle input;
  Handle output;
};

// The same on all processes: `ranks` are those of this process, by their numbers in the world.
inline void run_random_collectives(std::uint64_t seed, const std::vector<DeviceId>& devices,
                                   std::map<std::size_t, GpuRank>& ranks) {
  std::mt19937_64 random(seed);
  const auto below = [&](std::size_t bound) { return static_cast<std::size_t>(random() % bound); };
  for (int step = 0; step < 40; ++step) {
    std::vector<std::size_t> members;
    for (std::size_t rank = 0; rank < devices.size(); ++rank)
      if (devices.size() == 2 || below(4) != 0) members.push_back(rank);
    if (members.size() < 2) continue;
    std::vector<DeviceId> chosen;
    for (const std::size_t member : members) chosen.push_back(devices[member]);
    const CommunicationId group(chosen);
    const std::size_t count = below(5) == 0 ? most_elements / devices.size() : 1 + below(100);
    const std::size_t kind = below(9);
    const std::size_t root = below(members.size());
    const std::size_t other = (root + 1 + below(members.size() - 1)) % members.size();
    const bool swaps = below(2) == 0;
    ReduceOperation reduction = below(2) == 0 ? ReduceOperation::Max : ReduceOperation::Min;
#if COX_WORLD_STAND_INS
    if (below(2) == 0) reduction = ReduceOperation::Sum;
#endif
    for (std::size_t place = 0; place < members.size(); ++place) {
      const auto found = ranks.find(members[place]);
      if (found == ranks.end()) continue;
      auto& [client, input, output] = found->second;
      const auto part = [&](const Handle& of, std::size_t elements) {
        return of.offset_end(of.size_in_used() - elements * sizeof(float));
      };
      const std::size_t all = count * members.size();
      constexpr ElementType type = ElementType::F32;
      switch (kind) {
        case 0: client.all_reduce(part(input, count), part(output, count), type, group, reduction); break;
        case 1: client.reduce(part(input, count), part(output, count), type, group, reduction, chosen[root]); break;
        case 2: client.broadcast(part(input, count), part(output, count), type, group, chosen[root]); break;
        case 3: client.all_gather(part(input, count), part(output, all), type, group); break;
        case 4: client.reduce_scatter(part(input, all), part(output, count), type, group, reduction); break;
        case 5: client.all_to_all(part(input, all), part(output, all), type, group); break;
        case 6: client.barrier(group); break;
        case 7:
          client.collective_group(group, [&](auto& calls) {
            calls.all_reduce(part(input, count), part(output, count), type, reduction);
            calls.all_reduce(part(input, 2 * count), part(input, 2 * count), type, reduction);
          });
          break;
        default:
          if (place == root) client.send(part(input, count), type, chosen[other]);
          if (place == other) client.receive(part(output, count), type, chosen[root]);
      }
    }
    if (swaps)
      for (auto& [number, rank] : ranks) std::swap(rank.input, rank.output);
  }
}

inline std::uint64_t hash(const std::vector<float>& values) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const float value : values) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    hash = (hash ^ bits) * 0x100000001b3;
  }
  return hash;
}

// A process of the world, which has so many GPUs.
inline int work(std::size_t own_devices, std::uint64_t seeds) {
  prepare_gpus();
  const char* const number_of_process = std::getenv("COX_WORLD_PROCESS");
  const std::size_t process = number_of_process == nullptr ? 0 : std::stoul(number_of_process);
  const std::vector<DeviceId> own = gpus_of_process(process, own_devices);
  World world = World::join(own);
  const std::vector<DeviceId> devices = world.devices(cuda_device_type);
  std::map<std::size_t, GpuRank> ranks;
  for (std::size_t i = 0; i < own_devices; ++i) {
    const std::size_t number = world.process() * own_devices + i;
    const auto client = CudaClient::load(own[i]);
    const auto filled = [&](std::size_t scale) {
      std::vector<float> values(most_elements * devices.size());
      for (std::size_t at = 0; at < values.size(); ++at)
        values[at] = static_cast<float>((at * scale + number * 131) % 977) - 400.0F;
      return client.create(Bytes::from_vector(std::move(values)));
    };
    ranks.emplace(number, GpuRank{client, filled(1), filled(7)});
  }
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) run_random_collectives(seed, devices, ranks);
  for (auto& [number, rank] : ranks) {
    rank.client.sync().get();
    std::printf("rank %zu: %016llx %016llx\n", number,
                static_cast<unsigned long long>(hash(rank.client.read_one(rank.input).to_vector<float>())),
                static_cast<unsigned long long>(hash(rank.client.read_one(rank.output).to_vector<float>())));
  }
  std::fflush(stdout);
  ranks.clear();
  world.leave();
  return shutdown_all() == ShutdownOutcome::Drained ? 0 : 1;
}

// The output of all processes, sorted.
inline bool collect(std::size_t processes, std::size_t devices, const std::string& seeds,
                    std::vector<std::string>& lines) {
  WorldProcesses world(processes, {"work", std::to_string(devices), seeds});
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

// Runs `processes` times `devices` GPUs for each of the shapes, and compares the bits.
inline int compare(const std::vector<std::pair<std::size_t, std::size_t>>& shapes, const std::string& seeds) {
  std::vector<std::string> expected;
  for (const auto& [processes, devices] : shapes) {
    std::vector<std::string> lines;
    if (!collect(processes, devices, seeds, lines)) return 1;
    if (lines.size() != processes * devices) return 2;
    if (expected.empty()) expected = lines;
    if (lines == expected) continue;
    std::fprintf(stderr, "%zu processes of %zu GPUs have other results than %zu of %zu:\n", processes, devices,
                 shapes.front().first, shapes.front().second);
    for (const auto* set : {&expected, &lines})
      for (const std::string& line : *set) std::fprintf(stderr, "%s\n", line.c_str());
    return 1;
  }
  return 0;
}

// `arguments` of a process of the world: "work", its number of GPUs, the number of random programs.
inline int guarded_work(char** arguments) {
  try {
    return work(std::stoul(arguments[2]), std::stoull(arguments[3]));
  } catch (...) {
    std::fprintf(stderr, "%s\n", describe(std::current_exception()).c_str());
    return 2;
  }
}

}  // namespace cox::test
