#pragma once

#include <coxswain/device_handle/queue/platform.hpp>
#include <coxswain/perf/queue/lane.hpp>

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <thread>
#include <type_traits>
#include <utility>

namespace cox::perf {

/// A ring for one producer, both ends spinning, closures built in place: the floor that others are held against.
/// Slots of 64 bytes; a larger closure takes as many slots as it needs, side by side.
class SpscRing {
 public:
  static constexpr unsigned most_producers = 1;

  explicit SpscRing(const LaneOptions&) : thread_([this] { consume(); }) {}

  template <class F>
  void push(F&& f) {
    using Built = Record<std::decay_t<F>>;
    constexpr std::uint64_t need = sizeof(Built) / sizeof(Slot);
    std::uint64_t tail = tail_.load(std::memory_order_relaxed);
    const std::uint64_t to_end = slots - tail % slots;
    wait_for_space(tail + (to_end < need ? to_end + need : need));
    if (to_end < need) {
      ::new (at(tail)) Header{[](void*) {}, to_end};
      tail += to_end;
    }
    ::new (at(tail)) Built(std::forward<F>(f));
    tail_.store(tail + need, std::memory_order_release);  // partner: the acquire in consume
  }

  void stop() {
    push([this] { stopping_ = true; });
    thread_.join();
  }

 private:
  static constexpr std::uint64_t slots = 16'384;
  struct alignas(64) Slot {
    std::byte bytes[64];
  };
  struct Header {
    void (*run)(void*);
    std::uint64_t length;
  };
  template <class F>
  struct alignas(64) Record {
    template <class G>
    explicit Record(G&& g) : header{&run, sizeof(Record) / sizeof(Slot)}, f(std::forward<G>(g)) {}
    static void run(void* self) {
      auto& record = *static_cast<Record*>(self);
      record.f();
      record.~Record();
    }
    Header header;
    F f;
  };

  void* at(std::uint64_t position) { return &ring_[position % slots]; }

  void wait_for_space(std::uint64_t end) {
    while (end - known_head_ > slots) {
      known_head_ = head_.load(std::memory_order_acquire);  // partner: the release in consume
      if (end - known_head_ > slots) std::this_thread::yield();
    }
  }

  void consume() {
    std::uint64_t head = 0;
    for (unsigned idle = 0; !stopping_;) {
      const std::uint64_t tail = tail_.load(std::memory_order_acquire);
      if (head == tail && ++idle % 1024 == 0) std::this_thread::yield();
      if (head == tail) SystemPlatform::pause();
      while (head != tail) {
        auto* header = std::launder(static_cast<Header*>(at(head)));
        const std::uint64_t length = header->length;
        header->run(header);
        head += length;
        if (head % 64 < length) head_.store(head, std::memory_order_release);
      }
      head_.store(head, std::memory_order_release);
    }
  }

  std::unique_ptr<Slot[]> ring_ = std::make_unique_for_overwrite<Slot[]>(slots);
  std::uint64_t known_head_ = 0;  // producer only
  alignas(64) std::atomic<std::uint64_t> tail_{0};
  alignas(64) std::atomic<std::uint64_t> head_{0};
  alignas(64) bool stopping_ = false;  // consumer only
  std::thread thread_;
};

static_assert(Lane<SpscRing>);

}  // namespace cox::perf
