#pragma once

#include <coxswain/device_handle/queue/platform.hpp>
#include <coxswain/perf/queue/capacity_gate.hpp>
#include <coxswain/perf/queue/lane.hpp>
#include <coxswain/perf/queue/parking_spot.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace cox::perf {

/// Candidate (a). A chain of segments of 64-byte slots; a push takes its slots with one fetch_add on the last segment
/// and builds the closure there. A larger closure takes several slots side by side. Obeys L1: tickets are handed out in
/// one order, and a segment opens only after the one before it is full.
/// With Prefetch, a push also asks for the slot `Prefetch` places ahead for writing, so that the next fetch_add need
/// not wait until this slot's store has fetched its line.
template <unsigned Prefetch>
class TicketRing {
 public:
  explicit TicketRing(const LaneOptions& options)
      : spin_(options.spin), gate_(options.capacity), first_(fresh_segment()), tail_(first_) {
    first_->taken.store(0, std::memory_order_relaxed);
    thread_ = std::thread([this] { consume(); });
  }

  template <class F>
  void push(F&& f) {
    using G = std::decay_t<F>;
    constexpr std::uint64_t need = Built<G>::slots;
    static_assert(need < slots_per_segment);
    for (;;) {
      Segment* segment = tail_.load(std::memory_order_acquire);
      const std::uint64_t ticket = segment->taken.fetch_add(need, std::memory_order_acq_rel);  // partner: open()
      if (ticket + need <= slots_per_segment) [[likely]] {
        gate_.pass(segment->base + ticket, need);
        if constexpr (Prefetch != 0) fetch_for_writing(segment, ticket + need * Prefetch);
        ::new (segment->slot(ticket) + sizeof(Run)) G(std::forward<F>(f));
        segment->word(ticket).store(&Built<G>::run, std::memory_order_release);  // partner: the acquire in consume
        break;
      }
      if (ticket < slots_per_segment) segment->word(ticket).store(&skip_rest, std::memory_order_release);
      append_after(segment);
    }
    ready_.notify();
  }

  void stop() {
    push([this] { stopping_ = true; });
    thread_.join();
  }

 private:
  static constexpr std::uint64_t slots_per_segment = 1024;
  static constexpr std::uint64_t slot_bytes = 64;

  // Runs and destroys the closure behind the slot's first word; returns the slots it took.
  using Run = std::uint64_t (*)(void*);

  template <class F>
  struct Built {
    static_assert(alignof(F) <= alignof(Run));
    static constexpr std::uint64_t slots = (sizeof(Run) + sizeof(F) + slot_bytes - 1) / slot_bytes;
    static std::uint64_t run(void* at) {
      F& f = *std::launder(static_cast<F*>(at));
      f();
      f.~F();
      return slots;
    }
  };

  struct Segment {
    std::byte* slot(std::uint64_t index) { return bytes + index * slot_bytes; }
    // The slot's first word: null until the closure behind it is complete.
    std::atomic_ref<Run> word(std::uint64_t index) {
      return std::atomic_ref<Run>(*reinterpret_cast<Run*>(slot(index)));
    }

    alignas(64) std::byte bytes[slots_per_segment * slot_bytes];
    alignas(64) std::atomic<std::uint64_t> taken{slots_per_segment};  // full (closed) until it is opened
    alignas(64) std::uint64_t base = 0;
    std::atomic<Segment*> next{nullptr};
  };

  static std::uint64_t skip_rest(void*) { return slots_per_segment; }

  static void fetch_for_writing(Segment* segment, std::uint64_t slot) {
    if (slot >= slots_per_segment) return;
#if defined(__x86_64__)
    asm volatile("prefetchw %0" ::"m"(*segment->slot(slot)));  // the builtin asks for a shared line without -mprfchw
#else
    __builtin_prefetch(segment->slot(slot), 1);
#endif
  }

  Segment* fresh_segment() {
    if (!free_.empty()) {
      Segment* segment = free_.back();
      free_.pop_back();
      segment->next.store(nullptr, std::memory_order_relaxed);
      return segment;
    }
    all_.push_back(std::make_unique_for_overwrite<Segment>());
    Segment* segment = all_.back().get();
    for (std::uint64_t i = 0; i < slots_per_segment; ++i) segment->word(i).store(nullptr, std::memory_order_relaxed);
    return segment;
  }

  // A producer may hold a segment that was meanwhile recycled: it is closed until it is the last again, so that a
  // ticket from it is a ticket from the end of the chain.
  [[gnu::noinline]] void append_after(Segment* full) {
    const std::lock_guard lock(growth_);
    if (tail_.load(std::memory_order_relaxed) != full) return;
    if (full->taken.load(std::memory_order_relaxed) < slots_per_segment) return;
    Segment* segment = fresh_segment();
    segment->base = full->base + slots_per_segment;
    segment->taken.store(0, std::memory_order_release);  // open; partner: the fetch_add in push
    full->next.store(segment, std::memory_order_release);
    tail_.store(segment, std::memory_order_release);
  }

  void consume() {
    Segment* segment = first_;
    std::uint64_t at = 0;
    while (!stopping_) {
      if (at >= slots_per_segment) {
        ready_.wait(spin_, [&] { return segment->next.load(std::memory_order_acquire) != nullptr; });
        Segment* done = std::exchange(segment, segment->next.load(std::memory_order_relaxed));
        at = 0;
        const std::lock_guard lock(growth_);
        free_.push_back(done);
      }
      const auto word = segment->word(at);
      Run run = word.load(std::memory_order_acquire);
      if (run == nullptr) {
        ready_.wait(spin_, [&] { return (run = word.load(std::memory_order_acquire)) != nullptr; });
      }
      const std::uint64_t length = run(segment->slot(at) + sizeof(Run));
      for (std::uint64_t i = 0; i < length && at < slots_per_segment; ++i, ++at) {
        segment->word(at).store(nullptr, std::memory_order_relaxed);
      }
      if (at % 64 < length) gate_.consumed(segment->base + at);
    }
  }

  const std::chrono::nanoseconds spin_;
  CapacityGate gate_;
  ParkingSpot ready_;
  std::mutex growth_;  // guards free_, all_ and the end of the chain
  std::vector<Segment*> free_;
  std::vector<std::unique_ptr<Segment>> all_;
  Segment* const first_;
  alignas(64) std::atomic<Segment*> tail_;  // own line: read on every push, written every segment
  alignas(64) bool stopping_ = false;       // consumer only
  std::thread thread_;
};

static_assert(Lane<TicketRing<0>> && Lane<TicketRing<4>>);

}  // namespace cox::perf
