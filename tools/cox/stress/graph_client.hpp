#pragma once

#include <coxswain/runtime/bytes/bytes.hpp>
#include <coxswain/runtime/client/graph.hpp>
#include <coxswain/runtime/launch/cube_count.hpp>
#include <coxswain/tools/cox/stress/buffer.hpp>
#include <coxswain/tools/cox/stress/comparison.hpp>
#include <coxswain/tools/cox/stress/kernel_step.hpp>
#include <coxswain/tools/cox/stress/program.hpp>
#include <coxswain/tools/cox/stress/stopwatch.hpp>
#include <coxswain/tools/cox/stress/ticket_book.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace cox::stress {

/// Captures a piece of work and replays it, on a stream of its own for each device: output += a * input + b, through
/// an intermediate buffer that is dropped during the capture. Compute is a ComputeClient or stands in for it. One
/// thread.
template <class Compute>
class GraphClient {
 public:
  GraphClient(TicketBook& book, const std::vector<Compute>& devices) : book_(book) {
    for (const Compute& device : devices) devices_.push_back(opened(device));
  }
  /// The device was shut down and opened again: its graph is lost.
  void reopened(std::size_t device, const Compute& compute) { devices_[device] = opened(compute); }

  /// One step with the device's graph: captures it, or rewrites its input, replays it, or reads its output, after which
  /// it may be dropped. Returns how long the call took, in nanoseconds.
  std::uint64_t graph(const Plan& plan) {
    Random random(plan.choice);
    Device& device = devices_[plan.device];
    if (!device.captured) return capture(device, plan, random);
    switch (random.below(4)) {
      case 0: return rewrite(device, random);
      case 1: return check(device, plan, random);
      default: return replay(device);
    }
  }

  /// Waits for all work and drops the graphs.
  void finish() {
    for (Device& device : devices_) {
      device.captured.reset();
      device.client.sync().get();
    }
  }

 private:
  struct Captured {
    Buffer input;
    Buffer output;
    std::uint32_t factor;
    std::uint32_t summand;
    std::optional<decltype(std::declval<Compute>().graph_stop_capture())> graph;
  };
  struct Device {
    Compute client;
    std::optional<Captured> captured;
  };

  static Device opened(const Compute& compute) {
    Device device{compute, std::nullopt};
    device.client.set_stream(StreamId::allocate());
    return device;
  }

  static Buffer make(const Compute& client, std::size_t words, Random& random) {
    Buffer buffer{.handle = {}, .expected = seeded_words(words, random)};
    buffer.handle = client.create(Bytes::copy_of(buffer.expected));
    return buffer;
  }

  // Submits the work once. `on_the_cpu`: the work is executed, not only captured, so the expected output changes, too.
  static void work(const Compute& client, Captured& captured, bool on_the_cpu) {
    using Kernels = KernelsOf<Compute>;
    const Kernels& kernels = Kernels::instance();
    const std::size_t words = captured.output.expected.size();
    const CubeCount cubes = CubeCount::of_1d(KernelStep<typename Compute::Kernel>::cubes_for(words));
    const Buffer summand{.handle = client.empty(captured.output.bytes()), .expected = Words(words)};
    client.launch(kernels.fill, cubes, Kernels::arguments(summand, captured.summand));
    client.launch(kernels.axpy, cubes, Kernels::arguments(captured.output, captured.input, captured.factor));
    client.launch(kernels.axpy, cubes, Kernels::arguments(captured.output, summand, 1));
    if (on_the_cpu) run_on_the_cpu(captured);
  }

  static void run_on_the_cpu(Captured& captured) {
    for (std::size_t i = 0; i < captured.output.expected.size(); ++i)
      captured.output.expected[i] += captured.factor * captured.input.expected[i] + captured.summand;
  }

  std::uint64_t capture(Device& device, const Plan& plan, Random& random) {
    const Compute& client = device.client;
    const std::size_t words = plan.bytes / sizeof(std::uint32_t);
    Captured captured{.input = make(client, words, random),
                      .output = make(client, words, random),
                      .factor = static_cast<std::uint32_t>(random.next()),
                      .summand = static_cast<std::uint32_t>(random.next()),
                      .graph = std::nullopt};
    const Stopwatch stopwatch;
    client.graph_prepare();
    work(client, captured, true);
    client.graph_start_capture();
    work(client, captured, false);
    captured.graph.emplace(client.graph_stop_capture());
    device.captured = std::move(captured);
    return stopwatch.elapsed();
  }

  std::uint64_t rewrite(Device& device, Random& random) {
    Buffer& input = device.captured->input;
    input.expected = seeded_words(input.expected.size(), random);
    Bytes bytes = Bytes::copy_of(input.expected);
    const Stopwatch stopwatch;
    device.client.write(input.handle, std::move(bytes));
    return stopwatch.elapsed();
  }

  std::uint64_t replay(Device& device) {
    const Stopwatch stopwatch;
    device.captured->graph->replay();
    const std::uint64_t time = stopwatch.elapsed();
    run_on_the_cpu(*device.captured);
    return time;
  }

  std::uint64_t check(Device& device, const Plan& plan, Random& random) {
    const Ticket ticket = book_.write(plan.device, Sequence::of(plan.number, 0), Fate::Runs, 0);
    const Stopwatch stopwatch;
    const Bytes got = device.client.read_one(device.captured->output.handle);
    check_bytes(book_.truth(), ticket, device.captured->output.expected, got.span());
    if (random.below(4) == 0) device.captured.reset();
    return stopwatch.elapsed();
  }

  TicketBook& book_;
  std::vector<Device> devices_;
};

}  // namespace cox::stress
