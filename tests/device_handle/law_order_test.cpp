// L1: what was submitted before is run before, whoever submitted it.

#include <coxswain/tests/device_handle/contract.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <array>

using namespace contract;

namespace {

/// What the device saw: the sequence numbers must come as they were handed out.
struct Sequence {
  explicit Sequence(cox::DeviceId) {}
  void take(std::uint64_t number) {
    if (number != next) ++inversions;
    next = number + 1;
  }
  std::uint64_t next = 0;
  std::uint64_t inversions = 0;
};
using SequenceHandle = cox::DeviceHandle<Sequence>;

template <class Pass>
void hand_off(int thread_count, std::uint64_t hand_offs, const Pass& pass) {
  const TestDevice device;
  SequenceHandle handle = SequenceHandle::get(device);
  std::atomic<std::uint64_t> token{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < thread_count; ++t) {
    threads.emplace_back([&, handle, t]() mutable {
      const auto count = static_cast<std::uint64_t>(thread_count);
      for (std::uint64_t i = static_cast<std::uint64_t>(t); i < hand_offs; i += count) {
        while (token.load(std::memory_order_acquire) != i) std::this_thread::yield();
        pass(handle, i);
        token.store(i + 1, std::memory_order_release);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  const auto sequence = handle.submit_blocking([](Sequence& s) { return s; });
  CHECK(sequence.next == hand_offs);
  CHECK(sequence.inversions == 0);
}

void small(SequenceHandle& handle, std::uint64_t i) {
  handle.submit([i](Sequence& s) { s.take(i); });
}

/// Every size, and now and then somebody who waits.
void mixed(SequenceHandle& handle, std::uint64_t i) {
  switch (i % 16) {
    case 3:
      handle.submit(
          [i, big = std::array<char, 300>{}](Sequence& s) { s.take(i + static_cast<unsigned char>(big[0])); });
      break;
    case 7:
      handle.submit(
          [i, big = std::array<char, 3000>{}](Sequence& s) { s.take(i + static_cast<unsigned char>(big[0])); });
      break;
    case 8: handle.submit([i](Sequence& s) { s.take(i); }, before(std::chrono::steady_clock::now() + 1h)); break;
    case 9: handle.exclusive([&] { handle.submit_blocking([i](Sequence& s) { s.take(i); }); }); break;
    case 13: handle.submit_blocking([i](Sequence& s) { s.take(i); }); break;
    default: small(handle, i);
  }
}

constexpr std::uint64_t a_million = static_cast<std::uint64_t>(scaled(1'000'000));

}  // namespace

TEST_CASE("L1: 10^6 hand-offs between two threads come out in order", "[L1][alone]") { hand_off(2, a_million, small); }

TEST_CASE("L1: hand-offs among four threads come out in order", "[L1][alone]") { hand_off(4, a_million / 10, small); }

TEST_CASE("L1: hand-offs of closures of every size and of blocking calls come out in order", "[L1][alone]") {
  hand_off(2, a_million / 50, mixed);
  hand_off(3, a_million / 50, mixed);
}

TEST_CASE("L1: 10^7 hand-offs between two threads come out in order", "[.long][L1]") {
  hand_off(2, 10 * a_million, small);
}

TEST_CASE("L1: hand-offs among threads that come and go come out in order", "[L1]") {
  const TestDevice device;
  SequenceHandle handle = SequenceHandle::get(device);
  std::uint64_t number = 0;
  for (int round = 0; round < scaled(4000); ++round) {
    std::thread([&] {
      for (int i = 0; i < 5; ++i) small(handle, number++);
    }).join();
    if (round % 3 == 0) small(handle, number++);
  }
  const auto sequence = handle.submit_blocking([](Sequence& s) { return s; });
  CHECK(sequence.next == number);
  CHECK(sequence.inversions == 0);
  CHECK(eventually([&] { return handle.statistics().queue_bytes < 1U << 20U; },
                   5s));  // the lanes of threads that ended were used again
}

TEST_CASE("L1: hand-offs by a word that the device thread itself writes come out in order", "[L1][alone]") {
  // Thread two submits after it has seen the effect of thread one's task.
  const TestDevice device;
  SequenceHandle handle = SequenceHandle::get(device);
  constexpr std::uint64_t rounds = a_million / 50;
  std::atomic<std::uint64_t> seen{0};
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 2; ++t) {
    threads.emplace_back([&, handle, t]() mutable {
      for (std::uint64_t i = t; i < rounds; i += 2) {
        while (seen.load(std::memory_order_acquire) != i) std::this_thread::yield();
        handle.submit([&, i](Sequence& s) {
          s.take(i);
          seen.store(i + 1, std::memory_order_release);
        });
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(handle.submit_blocking([](Sequence& s) { return s.inversions; }) == 0);
}

TEST_CASE("L1: one thread's closures run in its order while others submit as well", "[L1]") {
  struct PerThread {
    explicit PerThread(cox::DeviceId) {}
    std::array<std::uint64_t, 4> next{};
    std::uint64_t inversions = 0;
  };
  const TestDevice device;
  auto handle = cox::DeviceHandle<PerThread>::get(device);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, handle, t]() mutable {
      for (std::uint64_t i = 0; i < a_million / 4; ++i) {
        handle.submit([t, i](PerThread& s) {
          if (s.next[t] != i) ++s.inversions;
          s.next[t] = i + 1;
        });
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(handle.submit_blocking([](PerThread& s) { return s.inversions; }) == 0);
}
