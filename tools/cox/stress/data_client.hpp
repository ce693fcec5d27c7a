#pragma once

#include <coxswain/runtime/base/execution_mode.hpp>
#include <coxswain/runtime/bytes/bytes.hpp>
#include <coxswain/runtime/launch/cube_count.hpp>
#include <coxswain/tools/cox/stress/buffer.hpp>
#include <coxswain/tools/cox/stress/data_stream.hpp>
#include <coxswain/tools/cox/stress/exchange.hpp>
#include <coxswain/tools/cox/stress/kernel_step.hpp>
#include <coxswain/tools/cox/stress/program.hpp>
#include <coxswain/tools/cox/stress/stopwatch.hpp>
#include <coxswain/tools/cox/stress/ticket_book.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace cox::stress {

/// Does the operations on device memory: create, read and launch, on two streams of each device, with buffers that it
/// swaps with other clients. Each returns how long the call under test took, in nanoseconds. Compute is a ComputeClient
/// or stands in for it. One thread.
template <class Compute>
class DataClient {
 public:
  /// `share`: bytes of each device that this client may use.
  DataClient(TicketBook& book, const std::vector<Compute>& devices, std::vector<Exchange>& exchanges,
             std::size_t share);

  std::uint64_t create(const Plan& plan);
  std::uint64_t read(const Plan& plan);
  std::uint64_t launch(const Plan& plan);
  /// A launch whose time is measured: its profile must complete, with a duration that is not negative.
  std::uint64_t profile(const Plan& plan);
  /// Waits for all work, completes the remaining checks, and drops the buffers.
  void finish();
  /// The device was shut down and opened again: its buffers are lost.
  void reopened(std::size_t device, const Compute& compute);

 private:
  static constexpr std::size_t max_buffers = 8;
  static constexpr std::uint64_t ways = 8;             // number of cases in make()
  static constexpr std::uint64_t ways_from_slice = 2;  // the first cases, which copy from a slice

  struct Device {
    std::vector<DataStream<Compute>> streams;
    std::vector<Buffer> buffers;
    std::size_t touched = 0;  // bytes of buffers used since the last wait for the streams
  };
  using Words32 = std::span<const std::uint32_t>;

  [[nodiscard]] Ticket ticket(const Plan& plan, std::size_t stream) const {
    return book_.write(plan.device, Sequence::of(plan.number, 0), Fate::Runs, static_cast<std::uint8_t>(stream));
  }
  [[nodiscard]] std::size_t pick_stream(Random& random) const {
    return static_cast<std::size_t>(random.below(Truth::data_streams));
  }
  void open(std::size_t device, const Compute& compute);
  std::uint64_t use_poisoned(const Plan& plan, std::size_t index, Random& random);
  std::uint64_t add_buffer(const Plan& plan, const Compute& client, Random& random);
  [[nodiscard]] Handle make(const Compute& client, Words& words, Bytes bytes, std::uint64_t way) const;
  [[nodiscard]] Buffer& pick_buffer(const Plan& plan, const Compute& client, Random& random);
  void touch(const Plan& plan, std::size_t bytes);
  void swap_now_and_then(const Plan& plan, Random& random);
  void settle(std::size_t device, Ticket ticket);

  TicketBook& book_;
  std::vector<Exchange>& exchanges_;
  std::size_t share_;
  std::vector<Device> devices_;
};

template <class Compute>
DataClient<Compute>::DataClient(TicketBook& book, const std::vector<Compute>& devices, std::vector<Exchange>& exchanges,
                                std::size_t share)
    : book_(book), exchanges_(exchanges), share_(share), devices_(devices.size()) {
  for (std::size_t d = 0; d < devices.size(); ++d) open(d, devices[d]);
}

template <class Compute>
void DataClient<Compute>::open(std::size_t device, const Compute& compute) {
  const Truth::Streams& streams = book_.truth().streams(book_.client());
  for (std::size_t s = 0; s < Truth::data_streams; ++s) {
    Compute client = compute;
    if (s > 0) client.set_stream(streams[s]);  // the first is the thread's own
    devices_[device].streams.emplace_back(book_.truth(), std::move(client));
  }
}

template <class Compute>
void DataClient<Compute>::reopened(std::size_t device, const Compute& compute) {
  for (DataStream<Compute>& stream : devices_[device].streams) stream.end();
  devices_[device] = {};
  open(device, compute);
}

template <class Compute>
std::uint64_t DataClient<Compute>::create(const Plan& plan) {
  Random random(plan.choice);
  swap_now_and_then(plan, random);
  return add_buffer(plan, devices_[plan.device].streams[pick_stream(random)].client(), random);
}

template <class Compute>
std::uint64_t DataClient<Compute>::add_buffer(const Plan& plan, const Compute& client, Random& random) {
  touch(plan, plan.bytes);
  Words words = seeded_words(plan.bytes / sizeof(std::uint32_t), random);
  const std::uint64_t way = random.below(ways);
  Bytes bytes = way < ways_from_slice ? Bytes() : Bytes::copy_of(words);
  const Stopwatch stopwatch;
  Handle handle = make(client, words, std::move(bytes), way);
  const std::uint64_t time = stopwatch.elapsed();
  std::vector<Buffer>& buffers = devices_[plan.device].buffers;
  if (buffers.size() >= max_buffers) {
    // Dropped at once, even if pending work still uses it (L11).
    buffers.erase(buffers.begin() + static_cast<std::ptrdiff_t>(random.below(buffers.size())));
  }
  buffers.push_back({std::move(handle), std::move(words)});
  return time;
}

// Copies the words to new memory; `way` chooses one of several API calls.
template <class Compute>
Handle DataClient<Compute>::make(const Compute& client, Words& words, Bytes bytes, std::uint64_t way) const {
  switch (way) {
    case 0: return client.create_from_slice(Words32(words));
    case 1: return client.create_from_slice_pinned(std::as_bytes(Words32(words)));
    case 2: {
      Handle handle = client.empty(bytes.size());
      client.write(handle, std::move(bytes));
      return handle;
    }
    case 3: return client.memory_persistent_allocation([&] { return client.create(std::move(bytes)); });
    case 4: client.staging({&bytes, 1}); [[fallthrough]];
    default: return client.create(std::move(bytes));
  }
}

template <class Compute>
Buffer& DataClient<Compute>::pick_buffer(const Plan& plan, const Compute& client, Random& random) {
  std::vector<Buffer>& buffers = devices_[plan.device].buffers;
  if (buffers.empty()) static_cast<void>(add_buffer(plan, client, random));
  return buffers[static_cast<std::size_t>(random.below(buffers.size()))];
}

// Bounds the memory that pending work keeps allocated.
template <class Compute>
void DataClient<Compute>::touch(const Plan& plan, std::size_t bytes) {
  constexpr std::size_t padding = 512;
  Device& device = devices_[plan.device];
  device.touched += bytes + padding;
  if (device.touched <= share_ / 4) return;
  settle(plan.device, ticket(plan, 0));
  device.touched = bytes + padding;
}

template <class Compute>
void DataClient<Compute>::swap_now_and_then(const Plan& plan, Random& random) {
  constexpr std::uint64_t one_in = 4;
  const bool now = random.below(one_in) == 0;
  const auto slot = static_cast<std::size_t>(random.below(1U << 16U));
  std::vector<Buffer>& buffers = devices_[plan.device].buffers;
  if (!now || buffers.empty()) return;
  const std::size_t given = slot % buffers.size();
  Buffer taken = exchanges_[plan.device].swap(slot, std::move(buffers[given]));
  if (taken.expected.empty()) {
    buffers.erase(buffers.begin() + static_cast<std::ptrdiff_t>(given));
  } else {
    buffers[given] = std::move(taken);
  }
}

template <class Compute>
std::uint64_t DataClient<Compute>::read(const Plan& plan) {
  Random random(plan.choice);
  swap_now_and_then(plan, random);
  const std::size_t index = pick_stream(random);
  DataStream<Compute>& stream = devices_[plan.device].streams[index];
  const Buffer& buffer = pick_buffer(plan, stream.client(), random);
  touch(plan, buffer.bytes());

  // All of it, or a window.
  constexpr std::size_t word = sizeof(std::uint32_t);
  const std::size_t words = buffer.expected.size();
  std::size_t first = 0;
  std::size_t count = words;
  if (random.below(4) == 0) {
    first = static_cast<std::size_t>(random.below(words));
    count = 1 + static_cast<std::size_t>(random.below(words - first));
  }
  const Handle window = buffer.handle.offset_start(first * word).offset_end((words - first - count) * word);
  const Words32 expected = Words32(buffer.expected).subspan(first, count);
  if (random.below(4) == 0) return stream.read_later(window, expected, ticket(plan, index));
  return stream.read_now(window, expected, ticket(plan, index));
}

template <class Compute>
std::uint64_t DataClient<Compute>::launch(const Plan& plan) {
  Random random(plan.choice);
  swap_now_and_then(plan, random);
  const std::size_t index = pick_stream(random);
  DataStream<Compute>& stream = devices_[plan.device].streams[index];
  const Compute& client = stream.client();
  Buffer& y = pick_buffer(plan, client, random);
  const Buffer& x = pick_buffer(plan, client, random);
  touch(plan, y.bytes() + x.bytes());
  if (plan.fault == Fault::Throw) return stream.launch_throwing(y, ticket(plan, index));
  if (plan.fault == Fault::Poison) return use_poisoned(plan, index, random);

  auto step = KernelStep<typename Compute::Kernel>::choose(y, x, random);
  CubeCount count = CubeCount::of_1d(step.cubes);
  if (random.below(8) == 0) {
    // The device reads the count from memory when the kernel starts; the handle is dropped long before that.
    const std::array<std::uint32_t, 3> extents{step.cubes, 1, 1};
    count = CubeCount::dynamic(client.create_from_slice(Words32(extents)));
  }
  const ExecutionMode mode = random.below(2) == 0 ? ExecutionMode::Checked : ExecutionMode::Unchecked;
  const Stopwatch stopwatch;
  client.launch(*step.kernel, std::move(count), std::move(step.arguments), mode);
  return stopwatch.elapsed();
}

// Uses the output of a kernel or an upload that fails on two streams. Then accepts that output, or overwrites the
// result that was computed from it.
template <class Compute>
std::uint64_t DataClient<Compute>::use_poisoned(const Plan& plan, std::size_t index, Random& random) {
  using Kernels = KernelsOf<Compute>;
  std::vector<DataStream<Compute>>& streams = devices_[plan.device].streams;
  DataStream<Compute>& stream = streams[index];
  DataStream<Compute>& other = streams[pick_stream(random)];
  const std::size_t words = std::max<std::size_t>(1, plan.bytes / sizeof(std::uint32_t));
  Buffer poisoned{.handle = {}, .expected = seeded_words(words, random)};
  Buffer result{.handle = {}, .expected = seeded_words(words, random)};
  for (Buffer* const buffer : {&poisoned, &result})
    buffer->handle = stream.client().create(Bytes::copy_of(buffer->expected));
  const Ticket ticket = this->ticket(plan, index);
  const std::uint64_t time =
      random.below(2) == 0 ? stream.poison(poisoned, ticket) : stream.poison_by_upload(poisoned, ticket);
  const auto cubes = static_cast<std::uint32_t>((words + kernel_units - 1) / kernel_units);
  other.launch_on_poisoned(Kernels::instance().axpy, CubeCount::of_1d(cubes), Kernels::arguments(result, poisoned, 3),
                           ticket);
  if (random.below(2) == 0) other.read_poisoned(result.handle, ticket);
  streams[pick_stream(random)].read_poisoned(random.below(2) == 0 ? poisoned.handle : result.handle, ticket);
  if (random.below(2) == 0) {
    stream.client().accept(poisoned.handle);
    stream.read_now(poisoned.handle, poisoned.expected, ticket);
  } else {
    other.client().write(result.handle, Bytes::copy_of(result.expected));
    other.read_now(result.handle, result.expected, ticket);
  }
  return time;
}

template <class Compute>
std::uint64_t DataClient<Compute>::profile(const Plan& plan) {
  Random random(plan.choice);
  const std::size_t index = pick_stream(random);
  const Compute& client = devices_[plan.device].streams[index].client();
  Buffer& y = pick_buffer(plan, client, random);
  touch(plan, y.bytes());
  auto step = KernelStep<typename Compute::Kernel>::choose(y, y, random);
  const Stopwatch stopwatch;
  auto duration =
      client.profile([&] { client.launch(*step.kernel, CubeCount::of_1d(step.cubes), std::move(step.arguments)); });
  const std::uint64_t time = stopwatch.elapsed();
  if (random.below(2) == 0) return time;  // dropped at any time
  if (duration.get().duration() < std::chrono::nanoseconds::zero())
    book_.truth().violated(Law::Data, ticket(plan, index), "the duration of a profile is not negative",
                           "it is negative");
  return time;
}

template <class Compute>
void DataClient<Compute>::settle(std::size_t device, Ticket ticket) {
  for (DataStream<Compute>& stream : devices_[device].streams) {
    ticket.stream = static_cast<std::uint8_t>(&stream - devices_[device].streams.data());
    stream.settle(ticket);
  }
}

template <class Compute>
void DataClient<Compute>::finish() {
  for (std::size_t d = 0; d < devices_.size(); ++d) {
    devices_[d].buffers.clear();
    settle(d, book_.write(d, {}, Fate::Runs, 0));
  }
}

}  // namespace cox::stress
