#pragma once

#include <coxswain/runtime/base/shape.hpp>
#include <coxswain/runtime/bytes/bytes.hpp>
#include <coxswain/runtime/tensor/memory_layout.hpp>
#include <coxswain/tools/cox/stress/buffer.hpp>
#include <coxswain/tools/cox/stress/comparison.hpp>
#include <coxswain/tools/cox/stress/program.hpp>
#include <coxswain/tools/cox/stress/stopwatch.hpp>
#include <coxswain/tools/cox/stress/ticket_book.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace cox::stress {

/// Creates tensors in the layout that the device prefers, with padded rows, overwrites and reads them, on a separate
/// stream for each device. Compute is a ComputeClient or stands in for it. One thread.
template <class Compute>
class TensorClient {
 public:
  TensorClient(TicketBook& book, const std::vector<Compute>& devices) : book_(book) {
    for (const Compute& device : devices) devices_.push_back(opened(device));
  }
  /// The device was shut down and opened again: its tensor is lost.
  void reopened(std::size_t device, const Compute& compute) { devices_[device] = opened(compute); }

  /// One step with the device's tensor: makes it, overwrites it, or reads and drops it. Returns how long the call took,
  /// in nanoseconds.
  std::uint64_t tensor(const Plan& plan) {
    Random random(plan.choice);
    Device& device = devices_[plan.device];
    if (!device.tensor) return create(device, plan, random);
    if (random.below(2) == 0) return overwrite(device, random);
    return read(device, plan, random);
  }

  /// Waits for all work and drops the tensors.
  void finish() {
    for (Device& device : devices_) {
      device.tensor.reset();
      device.client.sync().get();
    }
  }

 private:
  struct Tensor {
    Shape shape;
    MemoryLayout layout;
    Words expected;
  };
  struct Device {
    Compute client;
    std::optional<Tensor> tensor;
  };
  static Device opened(const Compute& compute) {
    Device device{compute, std::nullopt};
    device.client.set_stream(StreamId::allocate());
    return device;
  }
  static constexpr std::size_t word = sizeof(std::uint32_t);

  // At most as many words as the plan has, in 1 to 4 dimensions.
  static Shape choose_shape(std::size_t words, Random& random) {
    Shape shape;
    const std::uint64_t rank = 1 + random.below(4);
    for (std::uint64_t i = 1; i < rank; ++i) {
      const std::size_t extent = 1 + static_cast<std::size_t>(random.below(std::min<std::size_t>(words, 7)));
      shape.push_back(extent);
      words = std::max<std::size_t>(words / extent, 1);
    }
    shape.push_back(1 + static_cast<std::size_t>(random.below(words)));
    return shape;
  }

  std::uint64_t create(Device& device, const Plan& plan, Random& random) {
    Tensor tensor{.shape = choose_shape(plan.bytes / word, random), .layout = {}, .expected = {}};
    std::size_t words = 1;
    for (const std::size_t extent : tensor.shape) words *= extent;
    tensor.expected = seeded_words(words, random);
    Bytes bytes = Bytes::copy_of(tensor.expected);
    const Stopwatch stopwatch;
    tensor.layout = device.client.create_tensor(std::move(bytes), tensor.shape, word);
    const std::uint64_t time = stopwatch.elapsed();
    device.tensor = std::move(tensor);
    return time;
  }

  std::uint64_t overwrite(Device& device, Random& random) {
    Tensor& tensor = *device.tensor;
    tensor.expected = seeded_words(tensor.expected.size(), random);
    Bytes bytes = Bytes::copy_of(tensor.expected);
    const Stopwatch stopwatch;
    device.client.write_tensor(tensor.layout.copy_descriptor(tensor.shape, word), std::move(bytes));
    return stopwatch.elapsed();
  }

  std::uint64_t read(Device& device, const Plan& plan, Random& random) {
    const Tensor tensor = *std::exchange(device.tensor, std::nullopt);
    const Ticket ticket = book_.write(plan.device, Sequence::of(plan.number, 0), Fate::Runs, 0);
    const bool lazy = random.below(2) == 0;
    const Stopwatch stopwatch;
    const CopyDescriptor descriptor = tensor.layout.copy_descriptor(tensor.shape, word);
    const Bytes got = lazy ? device.client.read_lazy(descriptor) : device.client.read_one_tensor(descriptor);
    check_bytes(book_.truth(), ticket, tensor.expected, got.span());
    return stopwatch.elapsed();
  }

  TicketBook& book_;
  std::vector<Device> devices_;
};

}  // namespace cox::stress
