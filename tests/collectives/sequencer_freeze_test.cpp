#include <coxswain/tests/collectives/sequencer_bench.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <atomic>
#include <chrono>
#include <memory>

using namespace cox;
using namespace cox::test;
using namespace std::chrono_literals;

namespace {

/// A clock that the test moves.
struct Frozen {
  Told a, b;
  Watchdog::Time start = std::chrono::steady_clock::now();
  std::shared_ptr<std::atomic<std::int64_t>> minutes = std::make_shared<std::atomic<std::int64_t>>(0);
  Sequencer sequencer{{.now = [start = start, minutes = minutes] { return start + std::chrono::minutes(*minutes); }}};
  CommunicatorNumber pair = sequencer.open(among({0, 1}), 1h);

  void submit(std::size_t rank, Told& told) {
    static_cast<void>(sequencer.submit(pair, rank, {.requests = {of_count(1)}, .launch = told.launch()}));
  }
};

}  // namespace

TEST_CASE("No deadline passes while the sequencer is frozen, and all are moved by as long") {
  Frozen t;
  t.submit(0, t.a);
  t.sequencer.freeze();
  t.sequencer.freeze();
  *t.minutes = 90;
  CHECK(t.sequencer.expire(t.start + 90min).has_value());
  CHECK(t.a.times() == 0);
  t.sequencer.thaw();
  t.sequencer.expire(t.start + 90min);
  CHECK(t.a.times() == 0);
  t.sequencer.thaw();
  t.sequencer.expire(t.start + 149min);
  CHECK(t.a.times() == 0);
  t.sequencer.expire(t.start + 150min);
  CHECK(t.a.refusal() == CollectiveError::Kind::Timeout);
}

TEST_CASE("What is asked for in a frozen sequencer is released when all are there") {
  Frozen t;
  t.sequencer.freeze();
  t.submit(0, t.a);
  t.submit(1, t.b);
  CHECK(t.a.times() == 1);
  CHECK(t.b.times() == 1);
  CHECK_FALSE(t.a.refusal());
  t.sequencer.thaw();
}
