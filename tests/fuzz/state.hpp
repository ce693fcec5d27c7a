#pragma once

#include <coxswain/runtime/bytes/bytes.hpp>
#include <coxswain/runtime/client/graph.hpp>
#include <coxswain/tests/fuzz/buffer.hpp>
#include <coxswain/tests/fuzz/history.hpp>
#include <coxswain/tests/fuzz/stream.hpp>
#include <coxswain/tests/fuzz/world.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace cox::fuzz {

/// What one program has: its random numbers, streams and buffers, and the model of them.
template <class Backend>
class State {
 public:
  using Client = typename Backend::Client;
  using StreamOf = Stream<Client>;
  using Effect = std::function<void()>;  ///< What an operation does to the model.

  static constexpr std::size_t streams_of_device = 3;
  static constexpr std::size_t buffers_of_device = 12;

  /// Graphs that were captured together, one on each stream, and what a replay of all does to the model.
  struct Captured {
    std::vector<Graph<Client>> graphs;
    std::vector<StreamOf*> streams;
    std::uint32_t devices = 0;  ///< by bits
    bool joint = false;         ///< has a collective of those
    std::vector<Effect> effects;
    struct Use {
      BufferPtr buffer;
      bool reads;  ///< what other operations left
      bool writes;
      bool fresh;  ///< all of it was written before anything else
    };
    std::vector<Use> uses;  ///< each buffer once

    void use(const BufferPtr& buffer, bool reads, bool writes, bool whole) {
      const auto found = std::ranges::find(uses, buffer, &Use::buffer);
      if (found == uses.end()) return uses.push_back({buffer, reads, writes, writes && !reads && whole});
      if (found->fresh) return;
      found->fresh = !found->reads && !reads && whole;
      found->reads = found->reads || reads;
      found->writes = found->writes || writes;
    }
  };

  State(World<Backend>& of, std::shared_ptr<History> its_history)
      : world(of), history(std::move(its_history)), random_(history->seed()) {
    for (std::size_t device = 0; device < device_count; ++device) {
      for (std::size_t i = 0; i < streams_of_device; ++i)
        streams[device].push_back(std::make_unique<StreamOf>(StreamOf{world.client(device), device}));
      allocators[device] = std::make_unique<StreamOf>(StreamOf{world.client(device), device});
      epochs[device] = world.epoch(device);
    }
  }

  // Chance
  // -----------------------------------------------------------------------------------------------------------------

  std::size_t below(std::size_t bound) { return bound < 2 ? 0 : random_() % bound; }
  bool one_in(std::size_t n) { return below(n) == 0; }
  std::size_t between(std::size_t least, std::size_t most) { return least + below(most - least + 1); }
  std::uint32_t word() { return static_cast<std::uint32_t>(random_()); }
  StreamOf& any_stream(std::size_t device) { return *streams[device][below(streams_of_device)]; }
  StreamOf& any_stream() { return any_stream(below(device_count)); }
  ByteVector any_bytes(std::size_t size) {
    ByteVector bytes(size);
    std::uint32_t value = word();
    for (std::byte& byte : bytes) byte = static_cast<std::byte>((value = value * 1664525U + 1013904223U) >> 24U);
    return bytes;
  }
  /// 0, mostly small, seldom more than what goes by page-locked memory.
  std::size_t any_size() {
    if (one_in(20)) return 0;
    if (one_in(world.tight() ? 4 : 20)) return 4 * between(world.largest() / 16, world.largest() / 4);
    const std::size_t scale = std::size_t{1} << below(12);
    const std::size_t size = scale + below(scale);
    return one_in(4) ? size : (size + 3) / 4 * 4;
  }
  /// In any order.
  std::vector<std::size_t> any_devices(std::size_t least) {
    std::vector<std::size_t> devices(device_count);
    for (std::size_t i = 0; i < device_count; ++i) devices[i] = i;
    std::ranges::shuffle(devices, random_);
    devices.resize(between(least, device_count));
    return devices;
  }

  // Buffers
  // -----------------------------------------------------------------------------------------------------------------

  /// A new buffer with these bytes; null if the device had no memory left, and in a capture.
  BufferPtr make(StreamOf& stream, ByteVector bytes) {
    if (capturing != nullptr) return nullptr;
    auto buffer = std::make_shared<Buffer>();
    buffer->device = stream.device;
    const bool made = allocated(stream, [&](const Client& client) {
      buffer->handle = client.create(Bytes::copy_of(std::span<const std::byte>(bytes)));
    });
    buffer->bytes = std::move(bytes);
    return made ? keep(std::move(buffer)) : nullptr;
  }
  /// Calls `f(client)`, which allocates on that stream, or, in tight memory, on one where a refusal is seen at once.
  /// Returns whether there was memory.
  template <class F>
  bool allocated(StreamOf& stream, F&& f) {
    if (!world.tight()) {
      f(stream.client);
      return true;
    }
    const Client& client = allocators[stream.device]->client;
    f(client);
    const std::size_t failed = failures_of([&] { client.flush(); }, "an allocation");
    if (failed != 0) history->add(", no memory");
    if (failed != 0) ++refused;
    return failed == 0;
  }
  BufferPtr keep(BufferPtr buffer) {
    buffers[buffer->device].push_back(buffer);
    return buffer;
  }
  /// Drops the handle; graphs that were captured before may go on with the contents.
  void drop(std::size_t device, std::size_t index) {
    auto& all = buffers[device];
    std::swap(all[index], all.back());
    all.back()->handle = {};
    all.back()->tensor.reset();
    all.pop_back();
  }
  void drop_surplus() {
    for (std::size_t device = 0; device < device_count; ++device)
      while (buffers[device].size() > buffers_of_device) drop(device, below(buffers[device].size()));
  }
  /// A part of `size` bytes of a buffer, at a multiple of `align`, not of `other`; of a new one where there is none.
  /// Its buffer is null if there was no memory.
  Window any_window(StreamOf& stream, std::size_t size, std::size_t align, const BufferPtr& other = nullptr) {
    auto& all = buffers[stream.device];
    const std::size_t first = below(all.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
      const BufferPtr& buffer = all[(first + i) % all.size()];
      if (buffer->tensor || buffer == other || buffer->size() < size || one_in(3)) continue;
      return {buffer, below((buffer->size() - size) / align + 1) * align, size};
    }
    return {make(stream, any_bytes(size + (one_in(2) ? align * below(4) : 0))), 0, size};
  }
  /// A part of a buffer of whole words; its buffer is null if there is none.
  Window any_words(std::size_t device, const BufferPtr& other = nullptr) {
    auto& all = buffers[device];
    const std::size_t first = below(all.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
      const BufferPtr& buffer = all[(first + i) % all.size()];
      if (buffer->tensor || buffer == other || buffer->size() < 4) continue;
      const std::size_t words = buffer->size() / 4;
      const std::size_t begin = one_in(2) ? 0 : below(words);
      const std::size_t count = one_in(2) ? words - begin : between(1, words - begin);
      return {buffer, begin * 4, count * 4};
    }
    return {};
  }

  // Operations
  // -----------------------------------------------------------------------------------------------------------------

  /// The model does now, or at each replay of what is being captured.
  void does(Effect effect) {
    if (capturing != nullptr) {
      capturing->effects.push_back(std::move(effect));
    } else {
      effect();
    }
  }
  /// A kernel of the stream reads `from`, if it is there, and changes `to`.
  void launches(StreamOf& stream, const BufferPtr& from, const Window& to, Effect effect) {
    if (capturing != nullptr) {
      if (from != nullptr) capturing->use(from, true, false, false);
      capturing->use(to.buffer, true, true, false);
      return capturing->effects.push_back(std::move(effect));
    }
    std::vector<BufferPtr> reads{to.buffer};
    if (from != nullptr) reads.push_back(from);
    runs(stream, reads, {to.buffer}, [&] { effect(); });
  }
  /// `to` is written from the host, whatever was there.
  void uploads(const Window& to, Effect effect) {
    if (to.size == 0 && !to.is_whole()) return;  // nothing is done
    if (capturing != nullptr) capturing->use(to.buffer, false, true, to.is_whole());
    does(std::move(effect));
  }
  /// What an operation of the stream does to the model, which is refused where it would read poisoned memory (L14).
  template <class Run>
  void runs(StreamOf& stream, const std::vector<BufferPtr>& reads, const std::vector<BufferPtr>& writes, Run&& run) {
    if (std::ranges::any_of(reads, [](const BufferPtr& buffer) { return buffer->poisoned; })) {
      history->add(", poisoned:");
      for (const BufferPtr& buffer : reads)
        if (buffer->poisoned) history->add(" " + std::to_string(buffer->size()));
      stream.due.add();
      for (const BufferPtr& buffer : writes) buffer->poison();
      return;
    }
    const bool known = std::ranges::all_of(reads, [](const BufferPtr& buffer) { return buffer->known; });
    run();
    if (known) return;
    stream.due.perhaps();
    for (const BufferPtr& buffer : writes) buffer->known = false;
  }
  void await(StreamOf& stream, Awaited awaited) {
    awaited.operation = history->number();
    stream.awaited.push_back(std::move(awaited));
    if (stream.awaited.size() > 6 || one_in(4)) {
      auto& all = stream.awaited;
      std::swap(all[below(all.size())], all.back());
      const Awaited next = std::move(all.back());
      all.pop_back();
      next.check();
    }
  }
  std::size_t settle(StreamOf& stream) { return stream.settle(history->number()); }
  void settle_all() {
    for (auto& of_device : streams)
      for (auto& stream : of_device) settle(*stream);
    for (auto& all : buffers)
      for (const BufferPtr& buffer : all) buffer->joint = 0;
  }

  World<Backend>& world;
  const std::shared_ptr<History> history;
  std::array<std::vector<std::unique_ptr<StreamOf>>, device_count> streams;
  std::array<std::unique_ptr<StreamOf>, device_count> allocators;  ///< on which nothing else fails
  std::array<std::vector<BufferPtr>, device_count> buffers;
  std::array<std::size_t, device_count> epochs{};  ///< of the world, as this program knows them
  std::vector<std::unique_ptr<Captured>> graphs;
  Captured* capturing = nullptr;
  std::size_t refused = 0;  ///< allocations

 private:
  std::mt19937_64 random_;
};

}  // namespace cox::fuzz
