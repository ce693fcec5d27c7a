#pragma once

#include <coxswain/runtime/communication/collective_operation.hpp>
#include <coxswain/runtime/communication/communication_id.hpp>
#include <coxswain/runtime/communication/reducible_types.hpp>
#include <coxswain/tests/fuzz/collective_model.hpp>
#include <coxswain/tests/fuzz/data_steps.hpp>
#include <coxswain/tests/servers/contract/host_backend.hpp>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <utility>
#include <vector>

namespace cox::fuzz {

/// Collectives and transfers: all ranks' calls are made in one step, so that every set is complete.
template <class Backend>
class CollectiveSteps {
 public:
  using StateOf = State<Backend>;
  using StreamOf = typename StateOf::StreamOf;
  using enum CollectiveOperation;

  CollectiveSteps(StateOf& state, DataSteps<Backend>& data) : state_(state), data_(data) {}

  void collective() {
    std::vector<std::size_t> devices = state_.any_devices(2);
    std::ranges::sort(devices);  // the order of ranks
    std::vector<StreamOf*> streams;
    for (const std::size_t device : devices) streams.push_back(&state_.any_stream(device));
    collective(devices, streams, state_.one_in(6) ? 2 : 1);
  }

  /// One operation, or a group of so many, of these devices on these streams.
  void collective(const std::vector<std::size_t>& devices, const std::vector<StreamOf*>& streams, std::size_t parts) {
    std::vector<RankOperation> all;
    for (std::size_t i = 0; i < parts; ++i) all.push_back(any_part(devices.size(), parts > 1));
    state_.history->begin((parts > 1 ? "group: " : "") + text_of(all.front(), devices));
    for (std::size_t i = 1; i < parts; ++i) state_.history->add("; " + text_of(all[i], devices));
    for (RankOperation& part : all)
      for (std::size_t rank = 0; rank < devices.size(); ++rank)
        if (!add_windows(part, all, *streams[rank], rank, devices.size())) return;
    std::vector<BufferPtr> reads;
    for (const RankOperation& part : all) part.add_reads(reads);
    prepare(streams, 1, reads);
    std::vector<DeviceId> ids;
    for (const std::size_t device : devices) ids.push_back(World<Backend>::id(device));
    const CommunicationId set(ids);
    const std::uint32_t bits = bits_of(devices);
    {
      const std::lock_guard order(state_.world.order_of(bits));
      if (state_.capturing == nullptr && state_.one_in(32)) streams.front()->client.ensure_init_collective(set);
      for (std::size_t rank = 0; rank < devices.size(); ++rank)
        streams[rank]->client.collective_group(set, [&](CollectiveGroup& group) {
          for (const RankOperation& part : all) part.add_to(group, rank, ids[part.root]);
        });
    }
    note_joint(streams, bits);
    if (state_.capturing != nullptr) {
      for (const RankOperation& part : all) {
        for (const Window& source : part.sources) state_.capturing->use(source.buffer, true, false, false);
        for (const Window& destination : part.destinations)
          state_.capturing->use(destination.buffer, true, true, false);
      }
    }
    // A graph is replayed only while all that it uses is known.
    const bool poisoned = state_.capturing == nullptr && is_poisoned(reads);
    if (poisoned) state_.history->add(", poisoned:");
    for (const BufferPtr& buffer : reads)
      if (buffer->poisoned)
        state_.history->add(" " + std::to_string(buffer->size()) + " of device " + std::to_string(buffer->device));
    state_.does([all, bits, poisoned] {
      for (const RankOperation& part : all) poisoned ? part.poison() : part.apply(bits);
    });
    if (state_.capturing == nullptr && state_.one_in(8))
      streams[state_.below(streams.size())]->client.sync_collective();
  }

  /// Between two devices, by hand or by to_client.
  void transfer() {
    const std::vector<std::size_t> devices = state_.any_devices(2);
    StreamOf& from = state_.any_stream(devices[0]);
    StreamOf& to = state_.any_stream(devices[1]);
    if (state_.one_in(2)) return to_client(from, to);
    send(from, to, state_.one_in(8));
  }
  /// `late`: the sender is held up.
  void send(StreamOf& from, StreamOf& to, bool late) {
    const std::size_t size = state_.any_size() / 8 * 8;
    state_.history->begin("send of " + std::to_string(size) + text_of(from, to));
    const Window source = state_.any_window(from, size, 8);
    if (source.buffer == nullptr) return;
    const Window destination = state_.any_window(to, size, 8);
    if (destination.buffer == nullptr) return;
    if (late) data_.hold_up(from);
    if (size != 0) prepare({&from, &to}, 1, {source.buffer});
    const std::uint32_t bits = bits_of({from.device, to.device});
    {
      const std::lock_guard order(state_.world.transfers_of(bits));
      from.client.send(source.handle(), ElementType::I64, World<Backend>::id(to.device));
      to.client.receive(destination.handle(), ElementType::I64, World<Backend>::id(from.device));
    }
    note_joint({&from, &to}, bits);
    if (size == 0) return;
    if (is_poisoned({source.buffer})) return destination.buffer->poison();
    std::ranges::copy(source.bytes(), destination.bytes().begin());
    destination.written(source.buffer->known, source.buffer->joint | bits);
  }

  /// Many transfers by to_client in a row, always between the same devices: what other threads send there at the same
  /// time must not be mistaken for it.
  void burst() {
    StreamOf& from = state_.any_stream(0);
    StreamOf& to = state_.any_stream(1);
    const std::size_t count = state_.between(2, 12);
    state_.history->begin(std::to_string(count) + " times to_client" + text_of(from, to));
    const Window source = state_.any_window(from, 4 * state_.between(1, 16), 4);
    if (source.buffer == nullptr || state_.world.tight()) return;
    prepare({&from, &to}, count, {source.buffer});
    const std::uint32_t bits = bits_of({0, 1});
    Awaited awaited;
    std::vector<Handle> received;
    {
      const std::shared_lock order(state_.world.transfers_of(bits));
      for (std::size_t i = 0; i < count; ++i) {
        received.push_back(from.client.to_client(source.handle(), to.client, ElementType::U8));
        note_joint({&from, &to}, bits);
        awaited.expected.push_back({{source.bytes().begin(), source.bytes().end()},
                                    source.buffer->known,
                                    is_poisoned({source.buffer}),
                                    source.buffer->joint | bits});
      }
    }
    awaited.due = to.take();
    awaited.read = std::make_shared<Future<std::vector<Bytes>>>(to.client.read_async(received));
    state_.await(to, std::move(awaited));
  }

  [[nodiscard]] static std::uint32_t bits_of(const std::vector<std::size_t>& devices) {
    std::uint32_t bits = 0;
    for (const std::size_t device : devices) bits |= 1U << device;
    return bits;
  }

 private:
  static std::string text_of(const StreamOf& from, const StreamOf& to) {
    return " from device " + std::to_string(from.device) + " stream " + std::to_string(from.client.stream_id().value) +
           " to device " + std::to_string(to.device) + " stream " + std::to_string(to.client.stream_id().value);
  }
  static std::string text_of(const RankOperation& part, const std::vector<std::size_t>& devices) {
    std::string text = part.text() + " of devices";
    for (const std::size_t device : devices) text += " " + std::to_string(device);
    return text;
  }

  // Where the memory may be poisoned the ranks may get no result (L14).
  void prepare(const std::vector<StreamOf*>& streams, std::size_t operations, const std::vector<BufferPtr>& reads) {
    const bool good = std::ranges::all_of(reads, [](const BufferPtr& buffer) { return buffer->known; });
    if (!good && state_.capturing == nullptr)
      for (StreamOf* const stream : streams) stream->late += operations;
  }
  static bool is_poisoned(const std::vector<BufferPtr>& reads) {
    return std::ranges::any_of(reads, [](const BufferPtr& buffer) { return buffer->poisoned; });
  }
  void note_joint(const std::vector<StreamOf*>& streams, std::uint32_t bits) {
    for (StreamOf* const stream : streams) {
      stream->joint |= bits;
      ++stream->joint_count;
    }
  }

  RankOperation any_part(std::size_t ranks, bool grouped) {
    RankOperation part;
    constexpr std::size_t operations = 7;  // without send and receive
    part.operation = collective_operations[state_.below(operations)].operation;
    const CollectiveOperationFacts& facts = facts_of(part.operation);
    do {
      part.type = element_types[state_.below(element_types.size())].type;
    } while (facts.reduces && !can_reduce(part.type));
    part.reduce = static_cast<ReduceOperation>(state_.below(reduce_operation_names.size()));
    if (grouped && !by_nccl(part)) {
      part.type = ElementType::F32;
      part.reduce = ReduceOperation::Max;
    }
    part.root = state_.below(ranks);
    if (state_.one_in(12)) {
      part.count = 0;
    } else if (state_.one_in(24)) {
      part.count = state_.between(1000, 6000);
    } else {
      part.count = state_.between(1, 96);
    }
    part.in_place = state_.one_in(3);
    return part;
  }

  // Documented: on GPUs other reductions stand in no group with operations of NCCL.
  static bool by_nccl(const RankOperation& part) {
    if (Backend::device_type == test::HostBackend::device_type) return true;
    const bool is_float = accumulate_type(part.type) == ElementType::F32 || part.type == ElementType::F64;
    const bool is_narrow = part.type == ElementType::F8E4M3 || part.type == ElementType::F8E5M2 ||
                           part.type == ElementType::I16 || part.type == ElementType::U16;
    return !is_narrow && (is_float || part.reduce != ReduceOperation::Mean);
  }

  // The memory of one rank. False: there is none.
  bool add_windows(RankOperation& part, const std::vector<RankOperation>& all, StreamOf& stream, std::size_t rank,
                   std::size_t ranks) {
    const std::size_t block = part.count * element_size(part.type);
    const CollectiveOperationFacts& facts = facts_of(part.operation);
    if (!facts.has_elements) return true;
    const std::size_t in = block * (facts.input_of_all_size ? ranks : 1);
    const std::size_t out = block * (facts.output_of_all_size ? ranks : 1);
    const bool in_place = part.in_place && part.operation != AllToAll;
    Window larger = window_of_its_own(all, part, stream, std::max(in, out));
    if (larger.buffer == nullptr) return false;
    Window smaller = larger;
    if (in_place) {
      smaller = {larger.buffer, larger.begin + (in == out ? 0 : rank * block), std::min(in, out)};
    } else {
      smaller = window_of_its_own(all, part, stream, std::min(in, out), larger.buffer);
      if (smaller.buffer == nullptr) return false;
    }
    part.sources.push_back(in > out ? larger : smaller);
    part.destinations.push_back(in > out ? smaller : larger);
    return true;
  }
  // The operations of a group use no buffer of each other: in which order they do is not said.
  Window window_of_its_own(const std::vector<RankOperation>& all, const RankOperation&, StreamOf& stream,
                           std::size_t size, const BufferPtr& other = nullptr) {
    Window window = state_.any_window(stream, size, 8, other);
    for (const RankOperation& part : all)
      if (part.uses(window.buffer)) return {state_.make(stream, state_.any_bytes(size)), 0, size};
    return window;
  }

  void to_client(StreamOf& from, StreamOf& to) {
    const auto& all = state_.buffers[from.device];
    if (all.empty()) return state_.history->begin("no to_client: no buffer");
    const BufferPtr source = all[state_.below(all.size())];
    state_.history->begin((source->tensor ? "to_client_tensor of " : "to_client of ") + std::to_string(source->size()) +
                          text_of(from, to));
    prepare({&from, &to}, 1, {source});
    if (state_.world.tight()) {
      state_.settle(from);
      state_.settle(to);
    }
    auto made = std::make_shared<Buffer>();
    made->device = to.device;
    const std::uint32_t bits = bits_of({from.device, to.device});
    std::size_t first = 0;
    {
      const std::shared_lock order(state_.world.transfers_of(bits));
      if (source->tensor) {
        Tensor tensor = *source->tensor;
        const std::size_t count = state_.one_in(2) ? tensor.rows : state_.below(tensor.rows + 1);
        first = state_.below(tensor.rows - count + 1);
        const CopyDescriptor part = tensor.descriptor(first, count);
        tensor.rows = count;
        tensor.layout = from.client.to_client_tensor(part, to.client, type_of(tensor.elem_size));
        made->bytes.resize(count * tensor.columns * tensor.elem_size);
        first *= tensor.columns * tensor.elem_size;
        made->tensor = std::move(tensor);
      } else {
        made->handle = from.client.to_client(source->handle, to.client, ElementType::U8);
        made->bytes.resize(source->size());
      }
    }
    note_joint({&from, &to}, bits);
    std::copy_n(source->bytes.begin() + static_cast<std::ptrdiff_t>(first), made->size(), made->bytes.begin());
    made->known = source->known;
    made->poisoned = source->poisoned && made->size() != 0;
    made->joint = source->joint | bits;
    if (!state_.world.tight()) {
      state_.keep(std::move(made));
      return;
    }
    // The receiver may have had no memory: then there are two failures there, and one here.
    ++from.late;
    to.late += 2;
    const std::size_t failed_there = state_.settle(to);
    const std::size_t failed_here = state_.settle(from);
    if (failed_there == 0 && failed_here == 0) state_.keep(std::move(made));
  }
  static ElementType type_of(std::size_t size) {
    switch (size) {
      case 1: return ElementType::U8;
      case 2: return ElementType::BF16;
      case 4: return ElementType::F32;
      default: return ElementType::U64;
    }
  }

  StateOf& state_;
  DataSteps<Backend>& data_;
};

}  // namespace cox::fuzz
