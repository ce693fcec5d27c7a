#include <coxswain/runtime/trace/event_ring.hpp>

#include <coxswain/tests/support/catch.hpp>

#include <cstdint>
#include <set>
#include <vector>

using cox::trace::Event;
using cox::trace::detail::EventRing;

namespace {

/// Writes events numbered by their beginnings as one thread does.
class Filler {
 public:
  explicit Filler(EventRing& ring) : ring_(ring) {}

  void write(std::uint64_t number) {
    if (chunk_ == nullptr || ring_.full(*chunk_)) {
      if (chunk_ != nullptr) ring_.release(*chunk_);
      chunk_ = ring_.acquire();
      if (chunk_ == nullptr) return ring_.drop(1);
    }
    Event& event = chunk_->events[chunk_->count++];
    event = {};
    event.begin = number;
  }

 private:
  EventRing& ring_;
  EventRing::Chunk* chunk_ = nullptr;
};

std::set<std::uint64_t> numbers_in(const EventRing& ring) {
  std::set<std::uint64_t> numbers;
  ring.for_each([&](const Event& event) { numbers.insert(event.begin); });
  return numbers;
}

}  // namespace

TEST_CASE("A ring keeps the last events and counts those it dropped") {
  EventRing ring(1024);
  Filler filler(ring);
  for (std::uint64_t i = 1; i <= 1024; ++i) filler.write(i);
  CHECK(ring.dropped() == 0);
  CHECK(numbers_in(ring).size() == 1024);
  for (std::uint64_t i = 1025; i <= 5000; ++i) filler.write(i);
  const auto kept = numbers_in(ring);
  CHECK(kept.size() + ring.dropped() == 5000);
  CHECK(kept.size() > 1000);
  CHECK(*kept.rbegin() == 5000);
  CHECK(*kept.begin() == 5000 - kept.size() + 1);
}

TEST_CASE("A chunk that a thread still fills is not taken from it") {
  EventRing ring(1024);
  Filler slow(ring);
  Filler fast(ring);
  slow.write(1);
  for (std::uint64_t i = 2; i <= 10'000; ++i) fast.write(i);
  CHECK(numbers_in(ring).count(1) == 1);
  slow.write(20'000);
  CHECK(numbers_in(ring).count(20'000) == 1);
}

TEST_CASE("When every chunk is being filled further threads lose their events, which are counted") {
  EventRing ring(4);
  std::vector<Filler> fillers(6, Filler(ring));
  for (std::uint64_t i = 0; i < 6; ++i) fillers[i].write(i);
  CHECK(numbers_in(ring) == std::set<std::uint64_t>{0, 1, 2, 3});
  CHECK(ring.dropped() == 2);
}
