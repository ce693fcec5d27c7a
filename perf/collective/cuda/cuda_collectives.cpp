#include <coxswain/perf/collective/cuda/cuda_collectives.hpp>

#include <coxswain/collectives/nccl/nccl.hpp>
#include <coxswain/perf/collective/cuda/cold_start.hpp>
#include <coxswain/perf/collective/cuda/gpu_ranks.hpp>
#include <coxswain/perf/collective/cuda/matrix_product.hpp>
#include <coxswain/perf/collective/thread_team.hpp>
#include <coxswain/perf/cuda/raw_nccl.hpp>
#include <coxswain/perf/harness/nccl_tests.hpp>
#include <coxswain/perf/harness/suite.hpp>
#include <coxswain/runtime/config/process_settings.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace cox::perf {
namespace {

constexpr std::size_t kibibyte = std::size_t{1} << 10U;
constexpr std::size_t mebibyte = std::size_t{1} << 20U;

// Operations at most that are issued without waiting: a rank may be 1,024 ahead of the others.
constexpr std::size_t most_ahead = 800;

using Microseconds = std::chrono::duration<double, std::micro>;

std::string size_name(std::size_t bytes) {
  if (bytes < kibibyte) return std::to_string(bytes) + " B";
  return bytes < mebibyte ? std::to_string(bytes / kibibyte) + " KiB" : std::to_string(bytes / mebibyte) + " MiB";
}

/// What each rank's thread does.
struct RankWork {
  std::function<void(std::size_t rank)> issue;  ///< one operation
  std::function<void(std::size_t rank)> finish;
};

/// How what the ranks reduce gets there, and back. Both block.
struct RankData {
  std::function<void(std::size_t rank, std::span<const float>)> fill;
  std::function<void(std::size_t rank, std::span<float>)> get_result;
};

/// Elements that are not the sum, of all ranks together. The sums are exact.
double count_wrong(ThreadTeam& team, std::size_t elements, const RankWork& work, const RankData& data) {
  const auto pattern = [](std::size_t i) { return static_cast<float>(i % 1021 + 1); };
  const std::size_t ranks = team.size();
  const auto factors = static_cast<float>(ranks * (ranks + 1) / 2);
  std::atomic<std::size_t> wrong{0};
  team([&](std::size_t rank) {
    std::vector<float> values(elements);
    for (std::size_t i = 0; i < elements; ++i) values[i] = static_cast<float>(rank + 1) * pattern(i);
    data.fill(rank, values);
    work.issue(rank);
    work.finish(rank);
    data.get_result(rank, values);
    std::size_t its = 0;
    for (std::size_t i = 0; i < elements; ++i) its += values[i] == factors * pattern(i) ? 0U : 1U;
    wrong += its;
  });
  return static_cast<double>(wrong.load());
}

/// What the metrics of a case are made of: the first thread's times.
struct Times {
  double in_stream = 0;      ///< us an operation, many issued at once
  double issue = 0;          ///< us to issue one of these
  double one_at_a_time = 0;  ///< us an operation, each waited for
};

Times time(ThreadTeam& team, std::size_t count, const RankWork& work) {
  const auto each_one = [&](std::size_t times, bool wait) {
    double issued = 0;
    const auto begin = std::chrono::steady_clock::now();
    team([&](std::size_t rank) {
      const auto first = std::chrono::steady_clock::now();
      for (std::size_t i = 0; i < times; ++i) {
        work.issue(rank);
        if (wait) work.finish(rank);
      }
      if (rank == 0) issued = Microseconds(std::chrono::steady_clock::now() - first).count();
      work.finish(rank);
    });
    const double all = Microseconds(std::chrono::steady_clock::now() - begin).count();
    return std::pair(all / static_cast<double>(times), issued / static_cast<double>(times));
  };
  static_cast<void>(each_one(std::max<std::size_t>(count / 10, 2), false));
  const auto [in_stream, issue] = each_one(count, false);
  const auto [alone, ignored] = each_one(std::max<std::size_t>(count / 10, 50), true);  // the team has to be woken, too
  return {in_stream, issue, alone};
}

/// Ours and NCCL's, over the same GPUs.
class CollectiveCases {
 public:
  CollectiveCases(Suite& suite, std::size_t ranks, std::size_t largest, bool quick, std::string nccl_tests)
      : suite_(suite),
        ours_(ranks),
        raw_(ranks, largest),
        team_(ranks),
        quick_(quick),
        nccl_tests_(std::move(nccl_tests)) {
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      sources_.push_back(ours_.clients[rank].empty(largest));
      destinations_.push_back(ours_.clients[rank].empty(largest));
    }
    team_([&](std::size_t rank) { raw_.activate(rank); });
  }

  void add_all_reduce(std::size_t bytes, bool in_place) {
    const std::size_t count = repetitions(bytes);
    const double ranks = static_cast<double>(ours_.devices.size());
    const double size = static_cast<double>(bytes) / 1000.0;  // KB
    const double moved = 2.0 * (ranks - 1.0) / ranks * size;  // as nccl-tests count
    const auto sample = [=, this](const RankWork& work, const RankData& data) {
      const Times times = time(team_, count, work);
      return Sample{times.in_stream,
                    size / times.in_stream,
                    moved / times.in_stream,
                    times.one_at_a_time,
                    times.issue,
                    count_wrong(team_, bytes / sizeof(float), work, data)};
    };
    std::vector<Contender> contenders{
        {"coxswain", [=, this] { return sample(all_reduce(bytes, in_place), data(bytes, in_place)); }},
        {"nccl", [=, this] { return sample(raw_all_reduce(bytes, in_place), raw_data(in_place)); },
         "ncclAllReduce, a thread for each GPU"}};
    if (!nccl_tests_.empty())
      contenders.push_back({"nccl_tests",
                            [=, this] {
                              constexpr double none = std::numeric_limits<double>::quiet_NaN();
                              const NcclTestsRow row = run_nccl_tests(nccl_tests_, team_.size(), bytes, in_place);
                              return Sample{row.microseconds, row.algbw, row.busbw, none, none, row.wrong};
                            },
                            "all_reduce_perf -t, a process of its own"});
    suite_.add({.figure = bytes >= 32 * mebibyte ? "F13" : "F14",
                .name = "all_reduce of " + size_name(bytes) + " f32" + (in_place ? " in place" : ""),
                .metrics = {{"in a stream", "us"},
                            {"algbw", "GB/s", true},
                            {"busbw", "GB/s", true},
                            {"one at a time", "us"},
                            {"to issue one", "us"},
                            {"wrong", "elements"}},
                .contenders = std::move(contenders)});
  }

  /// all_gather and reduce_scatter, of so many bytes in all, and a broadcast and a reduce of as many.
  void add_blocks(std::size_t bytes) {
    const std::size_t count = repetitions(bytes);
    const std::size_t block = bytes / ours_.devices.size() / 16 * 16;
    const auto sample = [=, this](const RankWork& work) {
      const Times times = time(team_, count, work);
      return Sample{times.in_stream, times.one_at_a_time};
    };
    const auto add = [&](const std::string& what, RankWork ours, RankWork raw) {
      suite_.add({.figure = "blocks",
                  .name = what,
                  .metrics = {{"in a stream", "us"}, {"one at a time", "us"}},
                  .contenders = {{"coxswain", [=] { return sample(ours); }}, {"nccl", [=] { return sample(raw); }}}});
    };
    const std::size_t all = block * ours_.devices.size();
    const auto synchronize = [this](std::size_t rank) { raw_.synchronize(rank); };
    add("all_gather of " + size_name(bytes) + " in all",
        {[=, this](std::size_t rank) {
           ours_.clients[rank].all_gather(window(sources_[rank], block), window(destinations_[rank], all),
                                          ElementType::F32, ours_.devices);
         },
         finish()},
        {[=, this](std::size_t rank) { raw_.all_gather(rank, block); }, synchronize});
    add("reduce_scatter of " + size_name(bytes) + " in all",
        {[=, this](std::size_t rank) {
           ours_.clients[rank].reduce_scatter(window(sources_[rank], all), window(destinations_[rank], block),
                                              ElementType::F32, ours_.devices);
         },
         finish()},
        {[=, this](std::size_t rank) { raw_.reduce_scatter(rank, block); }, synchronize});
    add("broadcast of " + size_name(bytes),
        {[=, this](std::size_t rank) {
           ours_.clients[rank].broadcast(window(sources_[rank], bytes), window(destinations_[rank], bytes),
                                         ElementType::F32, ours_.devices, ours_.devices.front());
         },
         finish()},
        {[=, this](std::size_t rank) { raw_.broadcast(rank, bytes); }, synchronize});
    add("reduce of " + size_name(bytes),
        {[=, this](std::size_t rank) {
           ours_.clients[rank].reduce(window(sources_[rank], bytes), window(destinations_[rank], bytes),
                                      ElementType::F32, ours_.devices, ReduceOperation::Sum, ours_.devices.front());
         },
         finish()},
        {[=, this](std::size_t rank) { raw_.reduce(rank, bytes); }, synchronize});
  }

  void add_many(std::size_t tensors, std::size_t bytes) {
    const std::size_t count = quick_ ? 20 : 200;
    const auto sample = [this](std::size_t repetitions, const RankWork& work) {
      const Times times = time(team_, repetitions, work);
      return Sample{times.in_stream, times.one_at_a_time};
    };
    struct Tensor {
      Handle source;
      Handle destination;
    };
    const auto part = [=](const Handle& all, std::size_t i) {
      return all.offset_start(i * bytes).offset_end(all.size_in_used() - (i + 1) * bytes);
    };
    const auto of_ranks = std::make_shared<std::vector<std::vector<Tensor>>>(sources_.size());
    for (std::size_t rank = 0; rank < sources_.size(); ++rank)
      for (std::size_t i = 0; i < tensors; ++i)
        (*of_ranks)[rank].push_back({part(sources_[rank], i), part(destinations_[rank], i)});
    const auto grouped = [=, this](std::size_t rank) {
      ours_.clients[rank].collective_group(ours_.devices, [&](CollectiveGroup& group) {
        for (const Tensor& tensor : (*of_ranks)[rank])
          group.all_reduce(tensor.source, tensor.destination, ElementType::F32);
      });
    };
    const auto one_by_one = [=, this](std::size_t rank) {
      for (const Tensor& tensor : (*of_ranks)[rank])
        ours_.clients[rank].all_reduce(tensor.source, tensor.destination, ElementType::F32, ours_.devices);
    };
    suite_.add(
        {.figure = "F15",
         .name = "all_reduce of " + std::to_string(tensors) + " tensors of " + size_name(bytes),
         .metrics = {{"in a stream", "us"}, {"one at a time", "us"}},
         .contenders = {{"coxswain", [=, this] { return sample(count, {grouped, finish()}); }, "as one group"},
                        {"one_by_one", [=, this] { return sample(most_ahead / tensors, {one_by_one, finish()}); }},
                        {"one_buffer", [=, this] { return sample(count, all_reduce(tensors * bytes, false)); },
                         "the tensors in one buffer; F15: ours at most 1.3 times its time"}}});
  }

  /// What sums in a stream, and products of matrices in another one, cost each other. Each is timed while twice as much
  /// of the other one has been queued before it.
  void add_overlap(std::size_t bytes) {
    constexpr std::size_t rows = 4096;
    const std::size_t sums = quick_ ? 10 : 50;
    const std::size_t products = quick_ ? 2 : 8;
    const auto sample = [=, this](const RankWork& sum) {
      if (matrices_.empty())
        for (const DeviceId device : ours_.devices) matrices_.emplace_back(device, rows);
      const RankWork product{[this](std::size_t rank) { matrices_[rank].launch(); },
                             [this](std::size_t rank) { matrices_[rank].wait(); }};
      // Milliseconds of the slowest rank.
      const auto time_beside = [&](const RankWork& timed, std::size_t count, const RankWork& other,
                                   std::size_t other_count) {
        std::vector<double> took(team_.size());
        team_([&](std::size_t rank) {
          for (std::size_t i = 0; i < other_count; ++i) other.issue(rank);
          const auto begin = std::chrono::steady_clock::now();
          for (std::size_t i = 0; i < count; ++i) timed.issue(rank);
          timed.finish(rank);
          took[rank] = Microseconds(std::chrono::steady_clock::now() - begin).count() / 1000.0;
          other.finish(rank);
        });
        return std::ranges::max(took);
      };
      return Sample{time_beside(product, products, sum, 0), time_beside(product, products, sum, 2 * sums),
                    time_beside(sum, sums, product, 0), time_beside(sum, sums, product, 2 * products)};
    };
    suite_.add({.figure = "F13",
                .name = "overlap of " + std::to_string(sums) + " all_reduces of " + size_name(bytes) + " with " +
                        std::to_string(products) + " products of matrices of " + std::to_string(rows) + " rows",
                .metrics = {{"products alone", "ms"},
                            {"products beside all_reduces", "ms"},
                            {"all_reduces alone", "ms"},
                            {"all_reduces beside products", "ms"}},
                .contenders = {{"coxswain", [=, this] { return sample(all_reduce(bytes, false)); }},
                               {"nccl", [=, this] { return sample(raw_all_reduce(bytes, false)); },
                                "ncclAllReduce; the products are launched by Coxswain"}}});
  }

  void add_transfer(std::size_t bytes) {
    const std::size_t count = repetitions(bytes);
    const auto sample = [=, this](const RankWork& work) {
      const Times times = time(team_, count, work);
      return Sample{times.in_stream, static_cast<double>(bytes) / 1000.0 / times.in_stream, times.one_at_a_time};
    };
    const RankWork transfer{[=, this](std::size_t rank) {
                              if (rank == 0)
                                ours_.clients[0].send(window(sources_[0], bytes), ElementType::U8, ours_.devices[1]);
                              if (rank == 1)
                                ours_.clients[1].receive(window(destinations_[1], bytes), ElementType::U8,
                                                         ours_.devices[0]);
                            },
                            finish()};
    const RankWork raw{[=, this](std::size_t rank) {
                         if (rank == 0) raw_.send(0, bytes, 1);
                         if (rank == 1) raw_.receive(1, bytes, 0);
                       },
                       [this](std::size_t rank) { raw_.synchronize(rank); }};
    suite_.add({.figure = "F12",
                .name = "send and receive of " + size_name(bytes),
                .metrics = {{"in a stream", "us"}, {"rate", "GB/s", true}, {"one at a time", "us"}},
                .contenders = {{"coxswain", [=] { return sample(transfer); }},
                               {"nccl", [=] { return sample(raw); },
                                "ncclSend and ncclRecv; F12: ours 1.4 times the rate at 128 MiB"}}});
  }

 private:
  [[nodiscard]] std::size_t repetitions(std::size_t bytes) const {
    const std::size_t count =
        std::clamp<std::size_t>((std::size_t{4} << 30U) / std::max<std::size_t>(bytes, 1), 10, most_ahead);
    return quick_ ? std::max<std::size_t>(count / 4, 5) : count;
  }
  static Handle window(const Handle& all, std::size_t bytes) { return all.offset_end(all.size_in_used() - bytes); }
  [[nodiscard]] std::function<void(std::size_t)> finish() {
    return [this](std::size_t rank) {
      ours_.clients[rank].sync_collective();
      ours_.clients[rank].sync().get();
    };
  }
  RankWork all_reduce(std::size_t bytes, bool in_place) {
    return {[=, this](std::size_t rank) {
              const Handle destination = window(destinations_[rank], bytes);
              ours_.clients[rank].all_reduce(in_place ? destination : window(sources_[rank], bytes), destination,
                                             ElementType::F32, ours_.devices);
            },
            finish()};
  }
  [[nodiscard]] RankData data(std::size_t bytes, bool in_place) const {
    return {[=, this](std::size_t rank, std::span<const float> values) {
              const Handle& buffer = in_place ? destinations_[rank] : sources_[rank];
              ours_.clients[rank].write(window(buffer, bytes), Bytes::copy_of(std::as_bytes(values)));
            },
            [=, this](std::size_t rank, std::span<float> values) {
              ours_.clients[rank].read_one(window(destinations_[rank], bytes)).copy_to(std::as_writable_bytes(values));
            }};
  }
  [[nodiscard]] RankData raw_data(bool in_place) const {
    return {[=, this](std::size_t rank, std::span<const float> values) { raw_.fill(rank, in_place, values); },
            [this](std::size_t rank, std::span<float> values) { raw_.get_result(rank, values); }};
  }
  RankWork raw_all_reduce(std::size_t bytes, bool in_place) {
    return {[=, this](std::size_t rank) { raw_.all_reduce(rank, bytes, in_place); },
            [this](std::size_t rank) { raw_.synchronize(rank); }};
  }

  Suite& suite_;
  GpuRanks ours_;
  RawNccl raw_;
  ThreadTeam team_;
  const bool quick_;
  const std::string nccl_tests_;  // a folder; empty: there is none
  std::vector<Handle> sources_;
  std::vector<Handle> destinations_;
  std::vector<MatrixProduct> matrices_;  // for add_overlap(), from its first sample on
};

/// One rank of several does not come: when the others are told, counted from the deadline; and how long it takes from
/// then on until the devices have done an operation again.
Sample missing_rank(std::size_t ranks) {
  constexpr std::chrono::milliseconds timeout{200};
  const GpuRanks gpus(ranks);
  std::vector<Handle> buffers;
  for (const CudaClient& client : gpus.clients) buffers.push_back(client.create(Bytes::zeroed(mebibyte)));
  const auto ask = [&](std::size_t rank) {
    gpus.clients[rank].all_reduce(buffers[rank], buffers[rank], ElementType::F32, gpus.devices);
  };
  const auto settle = [&](std::size_t rank) {
    gpus.clients[rank].sync_collective();
    gpus.clients[rank].sync().get();
  };
  set_settings({{"collectives.timeout", std::chrono::nanoseconds(timeout)}});
  gpus.clients[0].ensure_init_collective(gpus.devices);
  reset_settings({"collectives.timeout"});
  for (std::size_t rank = 0; rank < ranks; ++rank) ask(rank);
  for (std::size_t rank = 0; rank < ranks; ++rank) settle(rank);
  const auto begin = std::chrono::steady_clock::now();
  for (std::size_t rank = 0; rank + 1 < ranks; ++rank) ask(rank);
  std::size_t told = 0;
  for (std::size_t rank = 0; rank + 1 < ranks; ++rank) {
    try {
      settle(rank);
    } catch (const ServerError&) {
      ++told;
    }
  }
  const auto end = std::chrono::steady_clock::now();
  if (told + 1 != ranks) throw std::runtime_error("not all ranks were notified that one is missing");
  gpus.clients[0].ensure_init_collective(gpus.devices);
  // The sums that were not executed have poisoned the buffers, whose contents do not matter here.
  for (std::size_t rank = 0; rank < ranks; ++rank) gpus.clients[rank].accept(buffers[rank]);
  for (std::size_t rank = 0; rank < ranks; ++rank) ask(rank);
  for (std::size_t rank = 0; rank < ranks; ++rank) settle(rank);
  using Milliseconds = std::chrono::duration<double, std::milli>;
  return {Milliseconds(end - begin - timeout).count(), Milliseconds(std::chrono::steady_clock::now() - end).count()};
}

}  // namespace

int measure_cuda_collectives(Options options, const CudaCollectives& measured) {
  std::size_t ranks = measured.ranks;
  const std::size_t there = enumerate_cuda_devices().size();
  if (ranks == 0) ranks = there;
  if (ranks < 2 || ranks > there) {
    std::fprintf(stderr,
                 "nothing is measured: %zu GPUs are requested, there are %zu, and collectives need at least two\n",
                 ranks, there);
    return ranks > there ? 2 : 0;
  }
  if (detail::find_nccl().nccl == nullptr) {
    std::fprintf(stderr, "nothing is measured: %s\n", detail::find_nccl().error.c_str());
    return 0;
  }
  if (measured.cold) return measure_cold_starts(std::move(options), ranks);
  const bool quick = options.quick;
  options.own_arguments = {"--cuda", "--gpus", std::to_string(ranks)};
  Suite suite(std::move(options), "coxswain");
  CollectiveCases cases(suite, ranks, (quick ? 128 : 1024) * mebibyte, quick, measured.nccl_tests);
  for (const std::size_t bytes : {std::size_t{8}, kibibyte, 32 * kibibyte, 128 * kibibyte, 512 * kibibyte, 2 * mebibyte,
                                  8 * mebibyte, 32 * mebibyte, 128 * mebibyte, 512 * mebibyte}) {
    if (quick && bytes > 128 * mebibyte) continue;
    cases.add_all_reduce(bytes, false);
    cases.add_all_reduce(bytes, true);
  }
  cases.add_overlap(quick ? 32 * mebibyte : 128 * mebibyte);
  cases.add_many(64, 64 * kibibyte);
  for (const std::size_t bytes : {4 * kibibyte, mebibyte, 128 * mebibyte}) cases.add_transfer(bytes);
  for (const std::size_t bytes : {32 * kibibyte, 512 * kibibyte, mebibyte, 2 * mebibyte, 8 * mebibyte})
    cases.add_blocks(bytes);
  suite.add({.figure = "F16",
             .name = "one of " + std::to_string(ranks) + " ranks does not submit",
             .metrics = {{"notified after the deadline", "ms"}, {"usable again after", "ms"}},
             .contenders = {{"coxswain", [=] { return missing_rank(ranks); }}},
             .fresh_process = true});  // it shuts the devices down
  return suite.run();
}

}  // namespace cox::perf
