// The kernels of small collectives, launched by a thread for each GPU without the rest of the library: which algorithm
// and how many thread blocks are best for which size. PeerKernelLimits come from these tables. "One at a time" is what
// F14b compares with.
#include <coxswain/perf/cuda/gpu_program.hpp>
#include <coxswain/perf/harness/suite.hpp>
#include <coxswain/perf/peer/bare_ranks.hpp>
#include <coxswain/servers/cuda/device/cuda_devices.hpp>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

namespace cox::perf {
namespace {

using detail::PeerKernelLimits;

constexpr std::size_t kibibyte = std::size_t{1} << 10U;
constexpr std::size_t mebibyte = std::size_t{1} << 20U;
constexpr std::size_t largest = detail::most_before_flags;

std::string size_name(std::size_t bytes) {
  if (bytes < kibibyte) return std::to_string(bytes) + " B";
  return bytes < mebibyte ? std::to_string(bytes / kibibyte) + " KiB" : std::to_string(bytes / mebibyte) + " MiB";
}

/// The first way that a size fits into.
enum class Way { Lines, OneShot, TwoShots };

constexpr const char* name_of(Way way) {
  switch (way) {
    case Way::Lines: return "lines";
    case Way::OneShot: return "one_shot";
    case Way::TwoShots: return "two_shots";
  }
  return "";
}

/// Limits by which everything goes this way.
PeerKernelLimits limits_of(Way way, std::size_t ranks, unsigned thread_blocks) {
  const std::size_t lines = way == Way::Lines ? detail::most_by_lines : 0;
  return {.lines = lines,
          .one_shot = way == Way::TwoShots ? 0 : largest / (ranks - 1),
          .all_reduce = largest,
          .block_lines = lines,
          .broadcast_lines = lines,
          .blocks = largest,
          .broadcast = largest,
          .thread_blocks = thread_blocks};
}

class PeerCases {
 public:
  PeerCases(Suite& suite, std::size_t ranks, bool quick)
      : suite_(suite), ranks_(std::make_shared<BareRanks>(ranks, largest)), size_(ranks), quick_(quick) {}

  void add(const char* figure, CollectiveOperation operation, std::size_t bytes) {
    const bool is_whole = operation == CollectiveOperation::AllReduce || operation == CollectiveOperation::Broadcast;
    CollectiveRequest request{.operation = operation, .element_type = ElementType::F32};
    request.count = std::max<std::size_t>(bytes / sizeof(float) / (is_whole ? 1 : size_) / 4 * 4, 1);
    Case added{.figure = figure,
               .name = std::string(to_string(operation)) + " of " + size_name(bytes),
               .metrics = {{"in a stream", "us"}, {"one at a time", "us"}},
               .contenders = {}};
    if (detail::PeerKernels::algorithm_of({request}, size_, false) != CollectiveAlgorithm::Nccl)
      added.contenders.push_back({.name = "coxswain",
                                  .run = [=, this] { return sample({request}, detail::peer_kernel_limits(size_)); },
                                  .note = "by peer_kernel_limits()"});
    const std::size_t rank_bytes = request.count * sizeof(float);
    const auto offer = [&](Way way) {
      for (const unsigned blocks : {8U, 16U, 32U, 64U, 128U}) {
        const std::size_t unit = way == Way::Lines ? 8 : 16;
        if (blocks > 8 && rank_bytes < blocks / 2 * unit * detail::peer_kernel_threads) continue;  // they are not used
        added.contenders.push_back({.name = std::string(name_of(way)) + "_" + std::to_string(blocks),
                                    .run = [=, this] { return sample({request}, limits_of(way, size_, blocks)); },
                                    .note = "thread blocks at most: " + std::to_string(blocks)});
      }
    };
    if (rank_bytes <= detail::most_by_lines) offer(Way::Lines);
    const bool reduces_all = operation == CollectiveOperation::AllReduce;
    if (!reduces_all || rank_bytes * (size_ - 1) <= largest) offer(Way::OneShot);
    if (reduces_all && size_ > 2) offer(Way::TwoShots);
    suite_.add(std::move(added));
  }

  /// A group of tensors beside one buffer of their size.
  void add_group(std::size_t tensors, std::size_t bytes) {
    const auto sample_of = [this](std::size_t pieces, std::size_t size) {
      const CollectiveRequest request{.count = size / sizeof(float)};
      return sample(CollectiveRequests::filled(pieces, request), detail::peer_kernel_limits(size_));
    };
    suite_.add(
        {.figure = "F15",
         .name = "all_reduce of " + std::to_string(tensors) + " tensors of " + size_name(bytes),
         .metrics = {{"in a stream", "us"}, {"one at a time", "us"}},
         .contenders = {{.name = "coxswain", .run = [=] { return sample_of(tensors, bytes); }, .note = "a group"},
                        {.name = "one_buffer",
                         .run = [=] { return sample_of(1, tensors * bytes); },
                         .note = "the tensors in one buffer"}}});
  }

 private:
  Sample sample(const CollectiveRequests& requests, const PeerKernelLimits& limits) const {
    const std::size_t bytes = requests.size() * requests.front().count * sizeof(float);
    const std::size_t count = (bytes >= mebibyte ? std::size_t{500} : std::size_t{2000}) / (quick_ ? 4 : 1);
    const BareTimes times = ranks_->time(requests, limits, count);
    return {times.in_stream, times.one_at_a_time};
  }

  Suite& suite_;
  std::shared_ptr<BareRanks> ranks_;
  std::size_t size_;
  bool quick_;
};

int measure(const Options& options, std::size_t ranks) {
  const std::size_t gpus = enumerate_cuda_devices().size();
  if (ranks == 0) ranks = std::min(gpus, detail::PeerKernels::max_ranks);
  if (ranks < 2 || ranks > gpus || ranks > detail::PeerKernels::max_ranks) {
    std::fprintf(stderr, "nothing is measured: this needs 2 to %zu GPUs, found %zu\n", detail::PeerKernels::max_ranks,
                 gpus);
    return 0;
  }
  Suite suite(options, "coxswain");
  PeerCases cases(suite, ranks, options.quick);
  for (const std::size_t bytes : {std::size_t{8}, kibibyte, 8 * kibibyte, 32 * kibibyte, 64 * kibibyte, 128 * kibibyte,
                                  256 * kibibyte, 512 * kibibyte, mebibyte, 2 * mebibyte, 4 * mebibyte, 8 * mebibyte})
    cases.add("F14", CollectiveOperation::AllReduce, bytes);
  for (const auto operation :
       {CollectiveOperation::AllGather, CollectiveOperation::ReduceScatter, CollectiveOperation::Broadcast})
    for (const std::size_t bytes :
         {kibibyte, 32 * kibibyte, 128 * kibibyte, 512 * kibibyte, 2 * mebibyte, 8 * mebibyte})
      cases.add("blocks", operation, bytes);
  cases.add_group(64, 64 * kibibyte);
  cases.add_group(64, kibibyte);
  return suite.run();
}

}  // namespace
}  // namespace cox::perf

int main(int argc, char** argv) {
  std::size_t ranks = 0;
  return cox::perf::gpu_program(
      argc, argv, "Measures the kernels of small collectives between GPUs without the rest of the library.",
      [&](CLI::App& app) { app.add_option("--gpus", ranks, "number of GPUs (default: all, up to 8)"); },
      [&](const cox::perf::Options& options) { return cox::perf::measure(options, ranks); });
}
