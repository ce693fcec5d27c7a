#pragma once

#include <coxswain/perf/collective/host_ranks.hpp>
#include <coxswain/perf/collective/thread_team.hpp>
#include <coxswain/perf/harness/suite.hpp>

#include <chrono>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <thread>
#include <vector>

namespace cox::perf {

using Milliseconds = std::chrono::duration<double, std::milli>;

/// Runs `f` once to warm up, then `times` times; gives the mean of those.
inline double milliseconds_of(std::size_t times, const std::function<void()>& f) {
  f();
  const auto begin = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < times; ++i) f();
  return Milliseconds(std::chrono::steady_clock::now() - begin).count() / static_cast<double>(times);
}

/// Buffers of all ranks in one process, for the peers.
struct PlainRanks {
  PlainRanks(std::size_t ranks, std::size_t count)
      : sources(ranks, std::vector<float>(count, 1.0F)), destinations(ranks, std::vector<float>(count)) {}
  std::vector<std::vector<float>> sources;
  std::vector<std::vector<float>> destinations;
};

struct Slice {
  std::size_t first;
  std::size_t count;
};
inline Slice slice_of(std::size_t elements, std::size_t part, std::size_t parts) {
  const std::size_t first = elements * part / parts;
  return {first, elements * (part + 1) / parts - first};
}

/// One all_reduce over host devices, asked for and waited for.
inline Sample all_reduce(std::size_t ranks, std::size_t bytes, std::size_t times) {
  const HostRanks hosts(ranks);
  const auto sources = hosts.buffers(bytes);
  const auto destinations = hosts.buffers(bytes);
  hosts.sync();
  return {milliseconds_of(times, [&] {
    for (std::size_t rank = 0; rank < ranks; ++rank)
      hosts.clients[rank].all_reduce(sources[rank], destinations[rank], ElementType::F32, hosts.devices);
    hosts.sync();
  })};
}

/// The same bytes read and written, by as many threads as the processor has: what the memory can do.
inline Sample copy_as_many_bytes(std::size_t ranks, std::size_t bytes, std::size_t times) {
  PlainRanks plain(ranks, bytes / sizeof(float));
  ThreadTeam team(std::thread::hardware_concurrency());
  return {milliseconds_of(times, [&] {
    team([&](std::size_t thread) {
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        const Slice slice = slice_of(plain.sources[rank].size(), thread, team.size());
        std::memcpy(plain.destinations[rank].data() + slice.first, plain.sources[rank].data() + slice.first,
                    slice.count * sizeof(float));
      }
    });
  })};
}

/// A thread for each rank and a barrier: everyone sums a part into its own memory, then everyone fetches the parts.
inline Sample threads_and_barrier(std::size_t ranks, std::size_t bytes, std::size_t times) {
  PlainRanks plain(ranks, bytes / sizeof(float));
  ThreadTeam team(ranks);
  std::barrier<> all_have_summed(static_cast<std::ptrdiff_t>(ranks));
  return {milliseconds_of(times, [&] {
    team([&](std::size_t rank) {
      const Slice own = slice_of(plain.sources[rank].size(), rank, ranks);
      float* const sum = plain.destinations[rank].data();
      for (std::size_t i = own.first; i < own.first + own.count; ++i) {
        float total = 0;
        for (const auto& source : plain.sources) total += source[i];
        sum[i] = total;
      }
      all_have_summed.arrive_and_wait();
      for (std::size_t from = 0; from < ranks; ++from) {
        const Slice part = slice_of(plain.sources[rank].size(), from, ranks);
        if (from != rank)
          std::memcpy(sum + part.first, plain.destinations[from].data() + part.first, part.count * sizeof(float));
      }
    });
  })};
}

/// How 64 tensors are reduced.
enum class Batch { Packed, Grouped, OneByOne };

inline Sample all_reduce_many(Batch batch, std::size_t tensors, std::size_t bytes, std::size_t times) {
  const HostRanks hosts(4);
  std::vector<std::vector<Handle>> memory;  // by rank
  for (const HostClient& client : hosts.clients) {
    const Handle all = client.create(Bytes::zeroed(tensors * bytes));
    std::vector<Handle> its;
    if (batch == Batch::Packed) its.push_back(all);
    for (std::size_t i = 0; batch != Batch::Packed && i < tensors; ++i)
      its.push_back(all.offset_start(i * bytes).offset_end((tensors - i - 1) * bytes));
    memory.push_back(std::move(its));
  }
  hosts.sync();
  return {milliseconds_of(times, [&] {
    for (std::size_t rank = 0; rank < 4; ++rank) {
      const HostClient& client = hosts.clients[rank];
      if (batch == Batch::Grouped) {
        client.collective_group(hosts.devices, [&](CollectiveGroup& group) {
          for (const Handle& tensor : memory[rank]) group.all_reduce(tensor, tensor, ElementType::F32);
        });
      } else {
        for (const Handle& tensor : memory[rank]) client.all_reduce(tensor, tensor, ElementType::F32, hosts.devices);
      }
    }
    hosts.sync();
  })};
}

/// One of four ranks does not come: when the others are told, counted from the deadline, and how long it takes from
/// then on until the communicator has done an operation again.
inline Sample missing_rank() {
  constexpr std::chrono::milliseconds timeout{100};
  set_settings({{"collectives.timeout", std::chrono::nanoseconds(timeout)}});
  const HostRanks hosts(4);
  const auto buffers = hosts.buffers(1 << 20);
  hosts.sync();
  const auto ask = [&](std::size_t rank) {
    hosts.clients[rank].all_reduce(buffers[rank], buffers[rank], ElementType::F32, hosts.devices);
  };
  const auto begin = std::chrono::steady_clock::now();
  for (std::size_t rank = 0; rank < 3; ++rank) ask(rank);
  std::size_t told = 0;
  for (std::size_t rank = 0; rank < 3; ++rank) {
    hosts.clients[rank].sync_collective();
    try {
      hosts.clients[rank].sync().get();
    } catch (const ServerError&) {
      ++told;
    }
  }
  const auto end = std::chrono::steady_clock::now();
  if (told != 3) throw std::runtime_error("not all ranks were notified that one is missing");
  hosts.clients[0].ensure_init_collective(hosts.devices);
  // The sums that were not executed have poisoned the buffers, whose contents do not matter here.
  for (std::size_t rank = 0; rank < 4; ++rank) hosts.clients[rank].accept(buffers[rank]);
  for (std::size_t rank = 0; rank < 4; ++rank) ask(rank);
  hosts.sync();
  return {Milliseconds(end - begin - timeout).count(), Milliseconds(std::chrono::steady_clock::now() - end).count()};
}

}  // namespace cox::perf
