#include <coxswain/perf/world/cuda/gpu_sums.hpp>

#include <coxswain/collectives/discovery/discover.hpp>
#include <coxswain/collectives/nccl/nccl_try.hpp>
#include <coxswain/collectives/world/world.hpp>
#include <coxswain/device_handle/base/shutdown.hpp>
#include <coxswain/perf/cuda/raw_nccl.hpp>
#include <coxswain/perf/world/cuda/sum_times.hpp>
#include <coxswain/perf/world/world_processes.hpp>
#include <coxswain/servers/cuda/device/cuda_devices.hpp>
#include <coxswain/servers/cuda/server/cuda_server.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace cox::perf {
namespace {

constexpr std::size_t gpus = 2;

class ClientRank final : public SumRank {
 public:
  ClientRank(DeviceId device, CommunicationId all, std::size_t largest)
      : client_(CudaClient::load(device)),
        all_(std::move(all)),
        source_(client_.empty(largest)),
        destination_(client_.empty(largest)) {}

  void all_reduce(std::size_t bytes) override {
    client_.all_reduce(first(source_, bytes), first(destination_, bytes), ElementType::F32, all_);
  }
  void wait() override {
    client_.sync_collective();
    client_.sync().get();
  }
  void fill(std::span<const float> values) override {
    client_.write(first(source_, values.size_bytes()), Bytes::copy_of(std::as_bytes(values)));
  }
  void get_result(std::span<float> values) override {
    client_.read_one(first(destination_, values.size_bytes())).copy_to(std::as_writable_bytes(values));
  }

 private:
  static Handle first(const Handle& all, std::size_t bytes) { return all.offset_end(all.size_in_used() - bytes); }

  CudaClient client_;
  CommunicationId all_;
  Handle source_;
  Handle destination_;
};

class NcclRank final : public SumRank {
 public:
  NcclRank(const RawNccl& nccl, std::size_t rank) : nccl_(nccl), rank_(rank) { nccl_.activate(rank_); }

  void all_reduce(std::size_t bytes) override { nccl_.all_reduce(rank_, bytes, false); }
  void wait() override { nccl_.synchronize(rank_); }
  void fill(std::span<const float> values) override { nccl_.fill(rank_, false, values); }
  void get_result(std::span<float> values) override { nccl_.get_result(rank_, values); }

 private:
  const RawNccl& nccl_;
  std::size_t rank_;
};

// Calls `body` for each rank of this process, by its number in the process, on a thread of its own; returns what it
// returned for the first one, with the wrong elements of all.
Sample on_each_rank(std::size_t ranks, const std::function<Sample(std::size_t)>& body) {
  std::vector<Sample> samples(ranks);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < ranks; ++i) threads.emplace_back([&, i] { samples[i] = body(i); });
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 1; i < ranks; ++i) samples.front().back() += samples[i].back();
  return samples.front();
}

Sample sums_of_clients(PlaceOfSample place, bool quick) {
  const std::size_t local = gpus / place.processes;
  const std::size_t before = place.process * local;
  std::vector<DeviceId> devices;
  for (std::size_t i = 0; i < local; ++i)
    devices.push_back({.type = cuda_device_type, .index = static_cast<std::uint16_t>(before + i)});
  World world = World::join(devices);
  const CommunicationId all(world.devices(cuda_device_type));
  Sample sample = on_each_rank(local, [&](std::size_t i) {
    ClientRank rank(devices[i], all, largest_sum(quick));
    return take_sum_times(rank, before + i, quick);
  });
  world.leave();
  shutdown_all();
  return sample;
}

// Process 0 makes the id; the others get it from the store in which the processes of a world find each other.
std::unique_ptr<RawNccl> open_nccl_of_processes(PlaceOfSample place, std::size_t largest) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  const std::unique_ptr<Store> store = discover().open_store(deadline);
  detail::NcclUniqueId id;
  if (place.process == 0) {
    COX_NCCL_TRY(nullptr, get_unique_id(&id));
    store->set("nccl", std::as_bytes(std::span(id.bytes)), deadline);
  } else {
    const std::vector<std::byte> value = store->get("nccl", deadline);
    if (value.size() != id.bytes.size()) throw std::runtime_error("the store has another id of NCCL");
    std::ranges::copy(value, std::as_writable_bytes(std::span(id.bytes)).begin());
  }
  const RawNcclPlace own{.ordinal = place.process, .rank = place.process, .ranks = place.processes};
  return std::make_unique<RawNccl>(own, id, largest);
}

Sample sums_of_nccl(PlaceOfSample place, bool quick) {
  const std::size_t local = gpus / place.processes;
  const auto nccl = place.processes == 1 ? std::make_unique<RawNccl>(gpus, largest_sum(quick))
                                         : open_nccl_of_processes(place, largest_sum(quick));
  return on_each_rank(local, [&](std::size_t i) {
    NcclRank rank(*nccl, i);
    return take_sum_times(rank, place.process * local + i, quick);
  });
}

// Why nothing can be measured; empty if it can. Opens no GPU.
std::string why_no_sums() {
  const std::size_t there = enumerate_cuda_devices().size();
  if (there == 0) return why_no_cuda();
  if (there < gpus) return "two GPUs are needed, and there is one";
  return detail::find_nccl().nccl == nullptr ? detail::find_nccl().error : "";
}

}  // namespace

void add_gpu_sums(Suite& suite, const Options& options) {
  if (options.sample.empty()) {  // else the process that wants the sample has checked it
    if (const std::string why = why_no_sums(); !why.empty()) {
      std::fprintf(stderr, "all_reduce over 2 GPUs is not measured: %s\n", why.c_str());
      return;
    }
  }
  const auto contender = [quick = options.quick](std::uint16_t processes, auto sums) {
    return [=] { return sample_of_world(processes, 0, [=](PlaceOfSample place) { return sums(place, quick); }); };
  };
  suite.add({.figure = "F21",
             .name = "all_reduce of f32 over 2 GPUs",
             .metrics = sum_metrics(options.quick),
             .contenders = {{"two_processes", contender(2, sums_of_clients), "a GPU each"},
                            {"one_process", contender(1, sums_of_clients), "with both GPUs"},
                            {"nccl_two_processes", contender(2, sums_of_nccl),
                             "ncclAllReduce, a GPU each; F21: ours at least 0.99 times its bandwidth, at most 1.2 "
                             "times its time in a stream"},
                            {"nccl_one_process", contender(1, sums_of_nccl), "ncclAllReduce, a thread for each GPU"}},
             .fresh_process = true});
}

}  // namespace cox::perf
