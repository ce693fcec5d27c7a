#include <coxswain/tests/stand_ins/peer_kernels.hpp>

#include <coxswain/collectives/reduction/reduce.hpp>
#include <coxswain/servers/cuda/peer/peer_kernels.hpp>
#include <coxswain/servers/cuda/peer/peer_kernels_source.hpp>
#include <coxswain/tests/stand_ins/kernel_functions.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace cox::test {
namespace {

using Run = FakeCuda::Run;
using Data = std::vector<std::byte>;  // whole units
using Peers = std::array<std::byte*, detail::PeerKernels::max_ranks>;

constexpr std::size_t unit = detail::flags_unit;

// The structs of the kernels.
struct Line {
  std::uint32_t first;
  std::uint32_t first_epoch;
  std::uint32_t second;
  std::uint32_t second_epoch;
};
static_assert(sizeof(Line) == detail::line_size);
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
  std::uint32_t all_whole;
  float density;
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

// By lines
// --------------------------------------------------------------------------------------------------------------------

constexpr std::size_t in_at = 0;
constexpr std::size_t out_at = 1;
constexpr std::size_t bytes_at = 2;

const std::byte* in(const Run& run) { return argument<const std::byte*>(run, in_at); }
std::byte* out(const Run& run) { return argument<std::byte*>(run, out_at); }
std::uint64_t bytes_of(const Run& run) { return argument<std::uint64_t>(run, bytes_at); }

/// A kernel of which each rank writes lines to each other rank, and reads what the others have written.
struct ByLines {
  static constexpr std::size_t peers_at = 3;
  static constexpr std::size_t stride_at = 4;
  static constexpr std::size_t rank_at = 5;

  std::vector<std::size_t> parameters{address, address, 8, sizeof(Peers), 8, word, word, address, sizeof(Count)};
  std::size_t epoch_at = 6;  // behind it: given_up, count
  /// What rank `from` writes for rank `to`; `from` is this rank. The size is that of what another rank writes, too.
  std::function<Data(const Run&, const Ranks&, std::size_t to)> write;
  std::function<std::size_t(const Run&, const Ranks&, std::size_t from)> size;
  /// Gets what the others have written, by rank.
  std::function<void(const Run&, const Ranks&, std::vector<Data>&)> read;

  [[nodiscard]] FakeCuda::KernelType kernel() const {
    return {parameters, [what = *this] {
              return [what](const Run& run) {
                const Ranks ranks(run, peers_at, rank_at, what.epoch_at);
                if (run.first_look) {
                  tell_count(run, what.epoch_at + 2);
                  ranks.each_other([&](std::size_t r) { send(run, ranks, r, what.write(run, ranks, r)); });
                }
                if (given_up(run, what.epoch_at + 1)) return true;
                std::vector<Data> by_rank(ranks.count);
                bool all_there = true;
                ranks.each_other([&](std::size_t r) {
                  by_rank[r].resize(rounded_up(what.size(run, ranks, r), detail::line_unit));
                  all_there = all_there && receive(run, ranks, r, by_rank[r]);
                });
                if (all_there) what.read(run, ranks, by_rank);
                return all_there;
              };
            }};
  }

 private:
  static std::byte* line(const Run& run, const Ranks& ranks, std::size_t to, std::size_t from, std::size_t i) {
    return ranks.at[to] + from * argument<std::uint64_t>(run, stride_at) + i * sizeof(Line);
  }
  static void send(const Run& run, const Ranks& ranks, std::size_t to, const Data& data) {
    for (std::size_t i = 0; i < data.size() / detail::line_unit; ++i) {
      Line sent{0, ranks.epoch, 0, ranks.epoch};
      std::memcpy(&sent.first, data.data() + i * detail::line_unit, sizeof(std::uint32_t));
      std::memcpy(&sent.second, data.data() + i * detail::line_unit + 4, sizeof(std::uint32_t));
      std::memcpy(line(run, ranks, to, ranks.own, i), &sent, sizeof(sent));
    }
  }
  static bool receive(const Run& run, const Ranks& ranks, std::size_t from, Data& data) {
    for (std::size_t i = 0; i < data.size() / detail::line_unit; ++i) {
      Line received{};
      std::memcpy(&received, line(run, ranks, ranks.own, from, i), sizeof(received));
      if (received.first_epoch != ranks.epoch || received.second_epoch != ranks.epoch) return false;
      std::memcpy(data.data() + i * detail::line_unit, &received.first, sizeof(std::uint32_t));
      std::memcpy(data.data() + i * detail::line_unit + 4, &received.second, sizeof(std::uint32_t));
    }
    return true;
  }
};

Data short_units(const std::byte* from, std::size_t bytes) { return copy_of(from, bytes, detail::line_unit); }
std::size_t whole_size(const Run& run, const Ranks&, std::size_t) { return bytes_of(run); }

FakeCuda::KernelType one_shot_lines(const Code& code) {
  ByLines kernel;
  kernel.write = [](const Run& run, const Ranks&, std::size_t) { return short_units(in(run), bytes_of(run)); };
  kernel.size = whole_size;
  kernel.read = [code](const Run& run, const Ranks& ranks, std::vector<Data>& by_rank) {
    by_rank[ranks.own] = short_units(in(run), bytes_of(run));
    if (out(run) != nullptr) std::memcpy(out(run), reduced(code, by_rank).data(), bytes_of(run));
  };
  return kernel.kernel();
}

FakeCuda::KernelType reduce_scatter_lines(const Code& code) {
  ByLines kernel;
  kernel.write = [](const Run& run, const Ranks&, std::size_t to) {
    return short_units(in(run) + to * bytes_of(run), bytes_of(run));
  };
  kernel.size = whole_size;
  kernel.read = [code](const Run& run, const Ranks& ranks, std::vector<Data>& by_rank) {
    by_rank[ranks.own] = short_units(in(run) + ranks.own * bytes_of(run), bytes_of(run));
    std::memcpy(out(run), reduced(code, by_rank).data(), bytes_of(run));
  };
  return kernel.kernel();
}

FakeCuda::KernelType all_gather_lines() {
  ByLines kernel;
  kernel.write = [](const Run& run, const Ranks&, std::size_t) { return short_units(in(run), bytes_of(run)); };
  kernel.size = whole_size;
  kernel.read = [](const Run& run, const Ranks& ranks, std::vector<Data>& by_rank) {
    const auto bytes = bytes_of(run);
    std::memmove(out(run) + ranks.own * bytes, in(run), bytes);
    ranks.each_other([&](std::size_t r) { std::memcpy(out(run) + r * bytes, by_rank[r].data(), bytes); });
  };
  return kernel.kernel();
}

FakeCuda::KernelType broadcast_lines() {
  constexpr std::size_t root_at = ByLines::rank_at + 1;
  ByLines kernel;
  kernel.parameters.insert(kernel.parameters.begin() + root_at, word);
  kernel.epoch_at = root_at + 1;
  // The others write a line to show that they have begun.
  kernel.size = [](const Run& run, const Ranks&, std::size_t from) {
    return from == number(run, root_at) ? bytes_of(run) : detail::line_unit;
  };
  kernel.write = [](const Run& run, const Ranks& ranks, std::size_t) {
    return ranks.own == number(run, root_at) ? short_units(in(run), bytes_of(run)) : Data(detail::line_unit);
  };
  kernel.read = [](const Run& run, const Ranks& ranks, std::vector<Data>& by_rank) {
    const std::size_t root = number(run, root_at);
    if (ranks.own == root) {
      std::memmove(out(run), in(run), bytes_of(run));
    } else {
      std::memcpy(out(run), by_rank[root].data(), bytes_of(run));
    }
  };
  return kernel.kernel();
}

// By flags
// --------------------------------------------------------------------------------------------------------------------

/// A kernel of which all ranks write something, meet, and read what the others have written; if `end` is not empty,
/// they meet once more before it. The flags of its first block stand for those of all.
struct ByFlags {
  std::vector<std::size_t> parameters;
  std::size_t flags_at;
  std::size_t rank_at;
  std::size_t epoch_at;  // behind it: given_up, count
  std::function<void(const Run&, const Ranks&)> write;
  std::function<void(const Run&, const Ranks&)> read;
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
                  what.read(run, ranks);
                  if (!what.end) return true;
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

/// Where a rank finds, before flags, what another one has written: data of so many bytes of each.
std::byte* input(const Peers& inputs, std::size_t to, std::size_t from, std::size_t bytes) {
  return inputs[to] + (from < to ? from : from - 1) * rounded_up(bytes, unit);
}

// The data of an all_reduce, from a whole unit on each.
Data load(const Whole& data) { return copy_of(data.in, data.bytes); }
void store(const Whole& data, const Data& from) {
  if (data.out != nullptr) std::copy_n(from.data(), data.bytes, data.out);
}
Data load(const Pieces& data) {
  Data all;
  for (std::size_t i = 0; i < data.count; ++i) {
    const auto places = std::bit_cast<std::uintptr_t>(data.in[i]) | std::bit_cast<std::uintptr_t>(data.out[i]);
    if (data.all_whole != 0 && (places | data.bytes[i]) % unit != 0) throw std::logic_error("a unit is not whole");
    const Data piece = copy_of(data.in[i], data.bytes[i]);
    all.insert(all.end(), piece.begin(), piece.end());
  }
  return all;
}
void store(const Pieces& data, const Data& from) {
  for (std::size_t i = 0; i < data.count; ++i)
    std::copy_n(from.data() + std::size_t{data.first[i]} * unit, data.bytes[i], data.out[i]);
}

Peers peers(const Run& run, std::size_t at) { return argument<Peers>(run, at); }

template <class Given>
FakeCuda::KernelType one_shot(const Code& code) {
  constexpr std::size_t inputs_at = 2;
  return ByFlags{.parameters = {sizeof(Given), sizeof(Peers), sizeof(Peers), word, word, address, sizeof(Count)},
                 .flags_at = 1,
                 .rank_at = 3,
                 .epoch_at = 4,
                 .write =
                     [](const Run& run, const Ranks& ranks) {
                       const Data data = load(argument<Given>(run, 0));
                       ranks.each_other([&](std::size_t r) {
                         std::ranges::copy(data, input(peers(run, inputs_at), r, ranks.own, data.size()));
                       });
                     },
                 .read =
                     [code](const Run& run, const Ranks& ranks) {
                       const auto given = argument<Given>(run, 0);
                       std::vector<Data> by_rank(ranks.count);
                       by_rank[ranks.own] = load(given);
                       const std::size_t size = by_rank[ranks.own].size();
                       ranks.each_other([&](std::size_t r) {
                         by_rank[r] = copy_of(input(peers(run, inputs_at), ranks.own, r, size), size);
                       });
                       store(given, reduced(code, by_rank));
                     },
                 .end = {}}
      .kernel();
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
  return ByFlags{
      .parameters = {sizeof(Given), sizeof(Peers), sizeof(Peers), sizeof(Peers), word, word, address, sizeof(Count)},
      .flags_at = 1,
      .rank_at = 4,
      .epoch_at = 5,
      .write =
          [](const Run& run, const Ranks& ranks) {
            const Data data = load(argument<Given>(run, 0));
            ranks.each_other([&](std::size_t r) {
              const Share share(data.size(), ranks.count, r);
              std::copy_n(data.data() + share.begin, share.end - share.begin,
                          input(peers(run, 2), r, ranks.own, share.size));
            });
          },
      .read =
          [code](const Run& run, const Ranks& ranks) {
            const Data data = load(argument<Given>(run, 0));
            const Share share(data.size(), ranks.count, ranks.own);
            std::vector<Data> by_rank(ranks.count);
            by_rank[ranks.own].assign(data.begin() + static_cast<std::ptrdiff_t>(share.begin),
                                      data.begin() + static_cast<std::ptrdiff_t>(share.end));
            ranks.each_other([&](std::size_t r) {
              by_rank[r] = copy_of(input(peers(run, 2), ranks.own, r, share.size), share.end - share.begin);
            });
            const Data result = reduced(code, by_rank);
            for (std::size_t r = 0; r < ranks.count; ++r) std::ranges::copy(result, peers(run, 3)[r] + share.begin);
          },
      .end =
          [](const Run& run, const Ranks& ranks) {
            const auto given = argument<Given>(run, 0);
            store(given, copy_of(peers(run, 3)[ranks.own], load(given).size()));
          }}
      .kernel();
}

constexpr std::size_t inputs_at = 4;

ByFlags of_blocks() {
  return {.parameters = {address, address, 8, sizeof(Peers), sizeof(Peers), word, word, address, sizeof(Count)},
          .flags_at = 3,
          .rank_at = 5,
          .epoch_at = 6,
          .write = {},
          .read = {},
          .end = {}};
}

FakeCuda::KernelType reduce_scatter(const Code& code) {
  ByFlags kernel = of_blocks();
  kernel.write = [](const Run& run, const Ranks& ranks) {
    const auto bytes = bytes_of(run);
    ranks.each_other([&](std::size_t r) {
      std::memcpy(input(peers(run, inputs_at), r, ranks.own, bytes), in(run) + r * bytes, bytes);
    });
  };
  kernel.read = [code](const Run& run, const Ranks& ranks) {
    const auto bytes = bytes_of(run);
    std::vector<Data> by_rank(ranks.count);
    by_rank[ranks.own] = copy_of(in(run) + ranks.own * bytes, bytes);
    ranks.each_other(
        [&](std::size_t r) { by_rank[r] = copy_of(input(peers(run, inputs_at), ranks.own, r, bytes), bytes); });
    std::memcpy(out(run), reduced(code, by_rank).data(), bytes);
  };
  return kernel.kernel();
}

FakeCuda::KernelType all_gather() {
  ByFlags kernel = of_blocks();
  kernel.write = [](const Run& run, const Ranks& ranks) {
    const auto bytes = bytes_of(run);
    ranks.each_other(
        [&](std::size_t r) { std::memcpy(input(peers(run, inputs_at), r, ranks.own, bytes), in(run), bytes); });
    std::memmove(out(run) + ranks.own * bytes, in(run), bytes);
  };
  kernel.read = [](const Run& run, const Ranks& ranks) {
    const auto bytes = bytes_of(run);
    ranks.each_other([&](std::size_t r) {
      std::memcpy(out(run) + r * bytes, input(peers(run, inputs_at), ranks.own, r, bytes), bytes);
    });
  };
  return kernel.kernel();
}

// What the root writes is at the beginning of the inputs.
FakeCuda::KernelType broadcast() {
  constexpr std::size_t root_at = 6;
  const auto is_root = [](const Run& run, const Ranks& ranks) { return number(run, root_at) == ranks.own; };
  ByFlags kernel = of_blocks();
  kernel.parameters.insert(kernel.parameters.begin() + root_at, word);
  kernel.epoch_at = root_at + 1;
  kernel.write = [is_root](const Run& run, const Ranks& ranks) {
    if (!is_root(run, ranks)) return;
    ranks.each_other([&](std::size_t r) { std::memcpy(peers(run, inputs_at)[r], in(run), bytes_of(run)); });
    std::memmove(out(run), in(run), bytes_of(run));
  };
  kernel.read = [is_root](const Run& run, const Ranks& ranks) {
    if (!is_root(run, ranks)) std::memcpy(out(run), peers(run, inputs_at)[ranks.own], bytes_of(run));
  };
  return kernel.kernel();
}

}  // namespace

void prepare_peer_kernels(FakeCuda& fake) {
  for (const ElementTypeFacts& facts : element_types) {
    if (!detail::has_peer_kernels(facts.type)) continue;
    for (std::size_t i = 0; i < reduce_operation_names.size(); ++i) {
      const Code code{facts.type, static_cast<ReduceOperation>(i)};
      const auto add = [&](detail::PeerKernel kernel, FakeCuda::KernelType function) {
        fake.kernels[detail::peer_kernel_name(kernel, {true, code.type, code.operation})] = std::move(function);
      };
      add(detail::PeerKernel::OneShotLines, one_shot_lines(code));
      add(detail::PeerKernel::ReduceScatterLines, reduce_scatter_lines(code));
      add(detail::PeerKernel::OneShot, one_shot<Whole>(code));
      add(detail::PeerKernel::OneShotGroup, one_shot<Pieces>(code));
      add(detail::PeerKernel::TwoShot, two_shot<Whole>(code));
      add(detail::PeerKernel::TwoShotGroup, two_shot<Pieces>(code));
      add(detail::PeerKernel::ReduceScatter, reduce_scatter(code));
    }
  }
  const auto add = [&](detail::PeerKernel kernel, FakeCuda::KernelType function) {
    fake.kernels[detail::peer_kernel_name(kernel, {})] = std::move(function);
  };
  add(detail::PeerKernel::AllGatherLines, all_gather_lines());
  add(detail::PeerKernel::BroadcastLines, broadcast_lines());
  add(detail::PeerKernel::AllGather, all_gather());
  add(detail::PeerKernel::Broadcast, broadcast());
}

}  // namespace cox::test
