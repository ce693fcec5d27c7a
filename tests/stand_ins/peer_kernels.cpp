#include <coxswain/tests/stand_ins/peer_kernels.hpp>

#include <coxswain/collectives/reduction/reduce.hpp>
#include <coxswain/servers/cuda/peer/peer_kernels.hpp>
#include <coxswain/servers/cuda/peer/peer_kernels_source.hpp>
#include <coxswain/tests/stand_ins/kernel_functions.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace cox::test {
namespace {

using Run = FakeCuda::Run;
using Data = std::vector<std::byte>;  // whole units
using Peers = std::array<std::byte*, detail::PeerKernels::max_ranks>;

constexpr std::size_t unit = detail::two_shot_unit;

// The structs of the kernels.
struct Line {
  std::uint32_t first;
  std::uint32_t first_epoch;
  std::uint32_t second;
  std::uint32_t second_epoch;
};
static_assert(sizeof(Line) == detail::one_shot_line);
struct Count {
  std::atomic<std::uint32_t>* counter;
  std::uint32_t value;
};
struct Whole {
  const std::byte* in;
  std::byte* out;
  std::uint64_t bytes;
};
struct Pieces {
  std::uint32_t count;
  std::array<std::uint32_t, detail::peer_kernel_pieces + 1> first;
  std::array<std::uint32_t, detail::peer_kernel_pieces> bytes;
  std::array<const std::byte*, detail::peer_kernel_pieces> in;
  std::array<std::byte*, detail::peer_kernel_pieces> out;
};

struct Code {
  ElementType type;
  ReduceOperation operation;
};

std::size_t rounded_up(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }

Data copy_of(const std::byte* from, std::size_t bytes, std::size_t to = unit) {
  Data data(from, from + bytes);
  data.resize(rounded_up(bytes, to));
  return data;
}

Data reduced(const Code& code, const std::vector<Data>& by_rank) {
  std::vector<const std::byte*> contributions;
  for (const Data& each : by_rank) contributions.push_back(each.data());
  Data result(by_rank.front().size());
  detail::reduce(code.type, code.operation, contributions, result.size() / element_size(code.type), result.data());
  return result;
}

/// What a kernel knows of the operation: the ranks are those that have memory here.
struct Ranks {
  Ranks(const Run& run, std::size_t peers_at, std::size_t rank_at, std::size_t epoch_at)
      : at(argument<Peers>(run, peers_at)),
        own(number(run, rank_at)),
        epoch(number(run, epoch_at)),
        count(static_cast<std::size_t>(std::ranges::find(at, nullptr) - at.begin())) {}

  template <class Visit>
  void each_other(const Visit& visit) const {
    for (std::size_t r = 0; r < count; ++r)
      if (r != own) visit(r);
  }

  Peers at;
  std::uint32_t own;
  std::uint32_t epoch;
  std::size_t count;
};

void tell_count(const Run& run, std::size_t at) {
  const auto count = argument<Count>(run, at);
  count.counter->store(count.value);
}
bool given_up(const Run& run, std::size_t at) {
  return argument<const std::atomic<std::uint32_t>*>(run, at)->load() != 0;
}

// One shot
// --------------------------------------------------------------------------------------------------------------------

void write_lines(const Run& run, const Ranks& ranks) {
  const auto bytes = argument<std::uint64_t>(run, 2);
  const Data own = copy_of(argument<const std::byte*>(run, 0), bytes, detail::one_shot_unit);
  std::vector<Line> lines(own.size() / detail::one_shot_unit, Line{0, ranks.epoch, 0, ranks.epoch});
  for (std::size_t i = 0; i < lines.size(); ++i) {
    std::memcpy(&lines[i].first, own.data() + i * detail::one_shot_unit, sizeof(std::uint32_t));
    std::memcpy(&lines[i].second, own.data() + i * detail::one_shot_unit + 4, sizeof(std::uint32_t));
  }
  ranks.each_other([&](std::size_t r) {
    std::memcpy(ranks.at[r] + ranks.own * argument<std::uint64_t>(run, 6), lines.data(), lines.size() * sizeof(Line));
  });
}

/// Whether all lines are there; then the result is.
bool read_lines(const Code& code, const Run& run, const Ranks& ranks) {
  const auto bytes = argument<std::uint64_t>(run, 2);
  std::vector<Data> by_rank(ranks.count);
  by_rank[ranks.own] = copy_of(argument<const std::byte*>(run, 0), bytes, detail::one_shot_unit);
  bool all_there = true;
  ranks.each_other([&](std::size_t r) {
    by_rank[r].resize(by_rank[ranks.own].size());
    for (std::size_t i = 0; i < by_rank[r].size() / detail::one_shot_unit; ++i) {
      Line line{};
      std::memcpy(&line, ranks.at[ranks.own] + r * argument<std::uint64_t>(run, 6) + i * sizeof(line), sizeof(line));
      all_there = all_there && line.first_epoch == ranks.epoch && line.second_epoch == ranks.epoch;
      std::memcpy(by_rank[r].data() + i * detail::one_shot_unit, &line.first, sizeof(std::uint32_t));
      std::memcpy(by_rank[r].data() + i * detail::one_shot_unit + 4, &line.second, sizeof(std::uint32_t));
    }
  });
  if (all_there) std::memcpy(argument<std::byte*>(run, 1), reduced(code, by_rank).data(), bytes);
  return all_there;
}

FakeCuda::KernelType one_shot(const Code& code) {
  return {{address, address, 8, sizeof(Peers), word, word, 8, address, sizeof(Count)}, [code] {
            return [code](const Run& run) {
              const Ranks ranks(run, 3, 4, 5);
              if (run.first_look) {
                tell_count(run, 8);
                write_lines(run, ranks);
              }
              return given_up(run, 7) || read_lines(code, run, ranks);
            };
          }};
}

// Two meetings
// --------------------------------------------------------------------------------------------------------------------

/// A kernel of which all ranks write something, meet by the flags of stage 0, read what the others have written, and
/// meet again. The flags of its first block stand for those of all.
struct TwoMeetings {
  std::vector<std::size_t> parameters;
  std::size_t flags_at;
  std::size_t rank_at;
  std::size_t epoch_at;  // behind it: given_up, count
  std::function<void(const Run&, const Ranks&)> write;
  std::function<void(const Run&, const Ranks&)> between;
  std::function<void(const Run&, const Ranks&)> end;

  [[nodiscard]] FakeCuda::KernelType kernel() const {
    return {parameters, [what = *this] {
              return [what, stage = std::size_t{0}](const Run& run) mutable {
                const Ranks ranks(run, what.flags_at, what.rank_at, what.epoch_at);
                if (run.first_look) {
                  tell_count(run, what.epoch_at + 2);
                  what.write(run, ranks);
                  raise(ranks, 0);
                }
                if (given_up(run, what.epoch_at + 1)) return true;
                if (stage == 0 && met(ranks, 0)) {
                  what.between(run, ranks);
                  raise(ranks, ++stage);
                }
                if (stage != 1 || !met(ranks, 1)) return false;
                what.end(run, ranks);
                return true;
              };
            }};
  }

 private:
  static std::byte* flag(const Ranks& ranks, std::size_t of, std::size_t stage, std::size_t by) {
    return ranks.at[of] + (stage * detail::peer_kernel_blocks * ranks.count + by) * sizeof(std::uint32_t);
  }
  static void raise(const Ranks& ranks, std::size_t stage) {
    ranks.each_other(
        [&](std::size_t r) { std::memcpy(flag(ranks, r, stage, ranks.own), &ranks.epoch, sizeof(ranks.epoch)); });
  }
  static bool met(const Ranks& ranks, std::size_t stage) {
    bool all = true;
    ranks.each_other([&](std::size_t r) {
      all = all && std::memcmp(flag(ranks, ranks.own, stage, r), &ranks.epoch, sizeof(ranks.epoch)) == 0;
    });
    return all;
  }
};

void nothing(const Run&, const Ranks&) {}

// The data of two shots, from a whole unit on each.
Data load(const Whole& data) { return copy_of(data.in, data.bytes); }
void store(const Whole& data, const Data& from) {
  if (data.out != nullptr) std::copy_n(from.data(), data.bytes, data.out);
}
Data load(const Pieces& data) {
  Data all;
  for (std::size_t i = 0; i < data.count; ++i) {
    const Data piece = copy_of(data.in[i], data.bytes[i]);
    all.insert(all.end(), piece.begin(), piece.end());
  }
  return all;
}
void store(const Pieces& data, const Data& from) {
  for (std::size_t i = 0; i < data.count; ++i)
    std::copy_n(from.data() + std::size_t{data.first[i]} * unit, data.bytes[i], data.out[i]);
}

/// Where a rank's share of so many bytes begins and ends.
struct Share {
  Share(std::size_t bytes, std::size_t ranks, std::size_t rank)
      : size((bytes / unit + ranks - 1) / ranks * unit),
        begin(std::min(bytes, rank * size)),
        end(std::min(bytes, begin + size)) {}
  std::size_t size;  // of all but the last
  std::size_t begin;
  std::size_t end;
};

template <class Given>
FakeCuda::KernelType two_shot(const Code& code) {
  const auto peers = [](const Run& run, std::size_t at) { return argument<Peers>(run, at); };
  return TwoMeetings{
      .parameters = {sizeof(Given), sizeof(Peers), sizeof(Peers), sizeof(Peers), word, word, address, sizeof(Count)},
      .flags_at = 1,
      .rank_at = 4,
      .epoch_at = 5,
      .write =
          [peers](const Run& run, const Ranks& ranks) {
            const Data data = load(argument<Given>(run, 0));
            ranks.each_other([&](std::size_t r) {
              const Share share(data.size(), ranks.count, r);
              std::copy_n(data.data() + share.begin, share.end - share.begin,
                          peers(run, 2)[r] + ranks.own * share.size);
            });
          },
      .between =
          [peers, code](const Run& run, const Ranks& ranks) {
            const Data data = load(argument<Given>(run, 0));
            const Share share(data.size(), ranks.count, ranks.own);
            std::vector<Data> by_rank(ranks.count);
            by_rank[ranks.own].assign(data.begin() + static_cast<std::ptrdiff_t>(share.begin),
                                      data.begin() + static_cast<std::ptrdiff_t>(share.end));
            ranks.each_other([&](std::size_t r) {
              by_rank[r] = copy_of(peers(run, 2)[ranks.own] + r * share.size, share.end - share.begin);
            });
            const Data result = reduced(code, by_rank);
            for (std::size_t r = 0; r < ranks.count; ++r) std::ranges::copy(result, peers(run, 3)[r] + share.begin);
          },
      .end =
          [peers](const Run& run, const Ranks& ranks) {
            const auto given = argument<Given>(run, 0);
            store(given, copy_of(peers(run, 3)[ranks.own], load(given).size()));
          }}
      .kernel();
}

constexpr std::size_t in_at = 0;
constexpr std::size_t out_at = 1;
constexpr std::size_t bytes_at = 2;

// Where the block of a rank is among the inputs.
std::byte* input(const Run& run, std::size_t of, std::size_t by) {
  return argument<Peers>(run, 4)[of] + by * rounded_up(argument<std::uint64_t>(run, bytes_at), unit);
}

TwoMeetings of_blocks() {
  return {.parameters = {address, address, 8, sizeof(Peers), sizeof(Peers), word, word, address, sizeof(Count)},
          .flags_at = 3,
          .rank_at = 5,
          .epoch_at = 6,
          .write = nothing,
          .between = nothing,
          .end = nothing};
}

FakeCuda::KernelType reduce_scatter(const Code& code) {
  TwoMeetings kernel = of_blocks();
  kernel.write = [](const Run& run, const Ranks& ranks) {
    const auto bytes = argument<std::uint64_t>(run, bytes_at);
    ranks.each_other([&](std::size_t r) {
      std::memcpy(input(run, r, ranks.own), argument<const std::byte*>(run, in_at) + r * bytes, bytes);
    });
  };
  kernel.between = [code](const Run& run, const Ranks& ranks) {
    const auto bytes = argument<std::uint64_t>(run, bytes_at);
    std::vector<Data> by_rank(ranks.count);
    by_rank[ranks.own] = copy_of(argument<const std::byte*>(run, in_at) + ranks.own * bytes, bytes);
    ranks.each_other([&](std::size_t r) { by_rank[r] = copy_of(input(run, ranks.own, r), bytes); });
    std::memcpy(argument<std::byte*>(run, out_at), reduced(code, by_rank).data(), bytes);
  };
  return kernel.kernel();
}

FakeCuda::KernelType all_gather() {
  TwoMeetings kernel = of_blocks();
  kernel.write = [](const Run& run, const Ranks& ranks) {
    const auto bytes = argument<std::uint64_t>(run, bytes_at);
    const auto* const in = argument<const std::byte*>(run, in_at);
    ranks.each_other([&](std::size_t r) { std::memcpy(input(run, r, ranks.own), in, bytes); });
    std::memmove(argument<std::byte*>(run, out_at) + ranks.own * bytes, in, bytes);
  };
  kernel.between = [](const Run& run, const Ranks& ranks) {
    const auto bytes = argument<std::uint64_t>(run, bytes_at);
    ranks.each_other([&](std::size_t r) {
      std::memcpy(argument<std::byte*>(run, out_at) + r * bytes, input(run, ranks.own, r), bytes);
    });
  };
  return kernel.kernel();
}

FakeCuda::KernelType broadcast() {
  const auto is_root = [](const Run& run, const Ranks& ranks) { return number(run, 6) == ranks.own; };
  TwoMeetings kernel = of_blocks();
  kernel.parameters.insert(kernel.parameters.begin() + 6, word);  // the root
  kernel.epoch_at = 7;
  kernel.write = [is_root](const Run& run, const Ranks& ranks) {
    if (!is_root(run, ranks)) return;
    const auto bytes = argument<std::uint64_t>(run, bytes_at);
    const auto* const in = argument<const std::byte*>(run, in_at);
    ranks.each_other([&](std::size_t r) { std::memcpy(input(run, r, 0), in, bytes); });
    std::memmove(argument<std::byte*>(run, out_at), in, bytes);
  };
  kernel.between = [is_root](const Run& run, const Ranks& ranks) {
    if (is_root(run, ranks)) return;
    std::memcpy(argument<std::byte*>(run, out_at), input(run, ranks.own, 0), argument<std::uint64_t>(run, bytes_at));
  };
  return kernel.kernel();
}

}  // namespace

void prepare_peer_kernels(FakeCuda& fake) {
  for (const ElementTypeFacts& facts : element_types) {
    if (!detail::has_peer_kernels(facts.type)) continue;
    for (std::size_t i = 0; i < reduce_operation_names.size(); ++i) {
      const Code code{facts.type, static_cast<ReduceOperation>(i)};
      const auto add = [&](const char* name, FakeCuda::KernelType kernel) {
        fake.kernels[detail::peer_kernel_name(name, code.type, code.operation)] = std::move(kernel);
      };
      add("cox_one_shot", one_shot(code));
      add("cox_two_shot", two_shot<Whole>(code));
      add("cox_two_shot_group", two_shot<Pieces>(code));
      add("cox_reduce_scatter", reduce_scatter(code));
    }
  }
  fake.kernels["cox_all_gather"] = all_gather();
  fake.kernels["cox_broadcast"] = broadcast();
}

}  // namespace cox::test
