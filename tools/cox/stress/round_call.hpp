#pragma once

#include <coxswain/runtime/bytes/bytes.hpp>
#include <coxswain/runtime/communication/collective_group.hpp>
#include <coxswain/runtime/handle/handle.hpp>
#include <coxswain/runtime/launch/cube_count.hpp>
#include <coxswain/tools/cox/stress/buffer.hpp>
#include <coxswain/tools/cox/stress/round.hpp>
#include <coxswain/tools/cox/stress/round_check.hpp>
#include <coxswain/tools/cox/stress/round_values.hpp>
#include <coxswain/tools/cox/stress/stream_faults.hpp>
#include <coxswain/tools/cox/stress/stress_kernels.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace cox::stress {

/// One rank's call of a round: makes its buffers on the client's stream, fills them, and submits the operations.
/// Compute is a ComputeClient or stands in for it. One thread.
template <class Compute>
class RoundCall {
 public:
  RoundCall(const Compute& client, const std::vector<DeviceId>& devices, Round& round, std::size_t rank, Random& random)
      : client_(client), devices_(devices), round_(round), rank_(rank), random_(random) {
    for (const RoundPart& part : round.parts) parts_.push_back(part);
    if (round.fault == Fault::Mismatch && round.faulty_rank == rank) ++parts_.front().count;
  }

  /// Submits the operations. Stores the locations of the results in the round.
  void make() {
    for (const RoundPart& part : parts_) buffers_.push_back(prepare(part));
    if (round_.fault == Fault::Poison && round_.faulty_rank == rank_) poison();
    RoundRank& mine = round_.ranks[rank_];
    mine.results.resize(parts_.size());
    if (parts_.front().operation == CollectiveOperation::Send) {
      transfer();
    } else if (parts_.size() == 1 && random_.below(4) != 0) {
      ask(parts_.front(), buffers_.front());
    } else {
      client_.collective_group(round_.line->group->id, [&](CollectiveGroup& group) {
        for (std::size_t i = 0; i < parts_.size(); ++i) add(group, parts_[i], buffers_[i]);
      });
    }
    for (std::size_t i = 0; i < parts_.size(); ++i)
      if (result_bytes(parts_[i], ranks(), rank_) > 0) mine.results[i] = whole(buffers_[i].destination);
  }

  /// Overwrites the sources with other data, which must not reach any rank. The stream then waits for the operations.
  void overwrite_sources() {
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      if (buffers_[i].in_place || source_bytes(parts_[i], ranks(), rank_) == 0) continue;
      client_.write(buffers_[i].source, Bytes::copy_of(overwriting(parts_[i], ranks(), rank_)));
      if (parts_[i].operation != CollectiveOperation::Send) continue;
      round_.ranks[rank_].results[i] = whole(buffers_[i].source);
      round_.ranks[rank_].overwritten = true;
    }
  }

  /// A kernel of another stream copies the first result, and the copy is read. Does nothing unless the result is at
  /// most 64 KiB of whole, aligned words.
  void use_result() {
    constexpr std::size_t most = 65536;  // bytes
    using Kernels = KernelsOf<Compute>;
    const Handle& result = buffers_.front().destination;
    const std::size_t bytes = result_bytes(parts_.front(), ranks(), rank_);
    if (bytes == 0 || bytes > most || bytes % sizeof(std::uint32_t) != 0 ||
        result.binding().offset_start % sizeof(std::uint32_t) != 0)
      return;
    Compute other = client_;
    other.set_stream(StreamId::allocate());
    Buffer copy{.handle = {}, .expected = Words(bytes / sizeof(std::uint32_t))};
    copy.handle = other.create(Bytes::copy_of(copy.expected));
    const auto cubes = static_cast<std::uint32_t>((copy.expected.size() + kernel_units - 1) / kernel_units);
    other.launch(Kernels::instance().axpy, CubeCount::of_1d(cubes),
                 Kernels::arguments(copy, {.handle = result, .expected = copy.expected}, 1));
    round_.ranks[rank_].dependent = other.read_async(std::array{copy.handle});
  }

 private:
  struct Buffers {
    Handle source;
    Handle destination;
    bool in_place = false;
  };

  // A kernel or an upload of another stream fails on the source, either before the call or at an arbitrary time.
  void poison() {
    Compute other = client_;
    other.set_stream(StreamId::allocate());
    const Handle& source = buffers_.front().source;
    const Ticket& ticket = round_.fault_ticket;
    if (random_.below(2) == 0) {
      KernelsOf<Compute>::launch_failing(other, {.handle = source, .expected = {}}, ticket.client, ticket.sequence);
    } else {
      other.write(source, Bytes::from_file(missing_file(ticket.client, ticket.sequence), 0, source.size_in_used()));
    }
    round_.poisoning = other.sync();
    if (random_.below(2) == 0) round_.poisoning.wait();
  }

  [[nodiscard]] std::size_t ranks() const noexcept { return round_.world_size(); }
  [[nodiscard]] DeviceId device(std::size_t rank) const { return devices_[round_.line->devices[rank]]; }
  [[nodiscard]] static CopyDescriptor whole(const Handle& handle) {
    return handle.copy_descriptor({handle.size_in_used()}, {1}, 1);
  }

  [[nodiscard]] Handle filled(const ByteVector& content) {
    if (random_.below(2) == 0) return client_.create(Bytes::copy_of(content));
    Handle handle = client_.empty(content.size());
    client_.write(handle, Bytes::copy_of(content));
    return handle;
  }

  Buffers prepare(const RoundPart& part) {
    const std::size_t from = source_bytes(part, ranks(), rank_);
    const std::size_t to = result_bytes(part, ranks(), rank_);
    if (round_.vote) {
      const std::uint32_t stop = round_.wants_stop ? 1 : 0;
      return {.source = client_.create(Bytes::copy_of(std::array{stop})), .destination = client_.empty(to)};
    }
    if (from == 0) return {.source = {}, .destination = to == 0 ? Handle() : client_.empty(to)};
    const ByteVector content = source_of(part, ranks(), rank_);
    const bool can_be_in_place = to > 0 && part.operation != CollectiveOperation::AllToAll;
    if (can_be_in_place && random_.below(3) == 0) return prepare_in_place(part, content, from, to);
    return {.source = filled(content), .destination = to == 0 ? Handle() : client_.empty(to)};
  }

  // Both buffers in one allocation: the smaller one is the rank's own block of the larger one.
  Buffers prepare_in_place(const RoundPart& part, const ByteVector& content, std::size_t from, std::size_t to) {
    const std::size_t block = part.count * element_size(part.type);
    const std::size_t before = from == to ? 0 : rank_ * block;
    ByteVector all(std::max(from, to));
    std::ranges::copy(content, all.begin() + static_cast<std::ptrdiff_t>(from < to ? before : 0));
    Handle memory = filled(all);
    const auto window = [&](std::size_t size) {
      return size == all.size() ? memory : memory.offset_start(before).offset_end(all.size() - before - size);
    };
    return {.source = window(from), .destination = window(to), .in_place = true};
  }

  void transfer() {
    if (rank_ == 0)
      client_.send(buffers_.front().source, parts_.front().type, device(1));
    else
      client_.receive(buffers_.front().destination, parts_.front().type, device(0));
  }

  void ask(const RoundPart& part, const Buffers& buffers) {
    const CommunicationId& all = round_.line->group->id;
    const Handle& from = buffers.source;
    const Handle& to = buffers.destination;
    switch (part.operation) {
      case CollectiveOperation::AllReduce: return client_.all_reduce(from, to, part.type, all, part.reduce);
      case CollectiveOperation::Reduce: return client_.reduce(from, to, part.type, all, part.reduce, device(part.root));
      case CollectiveOperation::Broadcast: return client_.broadcast(from, to, part.type, all, device(part.root));
      case CollectiveOperation::AllGather: return client_.all_gather(from, to, part.type, all);
      case CollectiveOperation::ReduceScatter: return client_.reduce_scatter(from, to, part.type, all, part.reduce);
      case CollectiveOperation::AllToAll: return client_.all_to_all(from, to, part.type, all);
      case CollectiveOperation::Barrier: return client_.barrier(all);
      case CollectiveOperation::Send:
      case CollectiveOperation::Receive: return transfer();
    }
  }

  void add(CollectiveGroup& group, const RoundPart& part, const Buffers& buffers) {
    const Handle& from = buffers.source;
    const Handle& to = buffers.destination;
    switch (part.operation) {
      case CollectiveOperation::AllReduce: return group.all_reduce(from, to, part.type, part.reduce);
      case CollectiveOperation::Reduce: return group.reduce(from, to, part.type, part.reduce, device(part.root));
      case CollectiveOperation::Broadcast: return group.broadcast(from, to, part.type, device(part.root));
      case CollectiveOperation::AllGather: return group.all_gather(from, to, part.type);
      case CollectiveOperation::ReduceScatter: return group.reduce_scatter(from, to, part.type, part.reduce);
      case CollectiveOperation::AllToAll: return group.all_to_all(from, to, part.type);
      case CollectiveOperation::Barrier: return group.barrier();
      case CollectiveOperation::Send:
      case CollectiveOperation::Receive: return;
    }
  }

  const Compute& client_;
  const std::vector<DeviceId>& devices_;
  Round& round_;
  std::size_t rank_;
  Random& random_;
  std::vector<RoundPart> parts_;
  std::vector<Buffers> buffers_;  // by part
};

}  // namespace cox::stress
