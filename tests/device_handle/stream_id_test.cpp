#include <coxswain/device_handle/base/stream_id.hpp>

#include <coxswain/tests/support/catch.hpp>

#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <unordered_set>
#include <vector>

using cox::StreamId;
using cox::StreamScope;

TEST_CASE("L9: every thread has a stream of its own and keeps it", "[stream_id]") {
  std::mutex mutex;
  std::unordered_set<StreamId> seen{StreamId::current()};
  std::vector<std::thread> threads;
  bool kept = true;
  for (int t = 0; t < 16; ++t) {
    threads.emplace_back([&] {
      const StreamId mine = StreamId::current();
      const std::scoped_lock lock(mutex);
      seen.insert(mine);
      kept = kept && mine == StreamId::current();
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(seen.size() == 17);
  CHECK(kept);
}

TEST_CASE("Allocated stream ids are never given out twice", "[stream_id]") {
  std::set<StreamId> seen{StreamId::current()};
  for (int i = 0; i < 1000; ++i) CHECK(seen.insert(StreamId::allocate()).second);
}

TEST_CASE("L9: scopes nest, also with zero, and restore what was before, also after a throw", "[stream_id]") {
  const StreamId outer = StreamId::current();
  {
    const StreamScope zero(StreamId{0});
    CHECK(StreamId::current() == StreamId{0});
    {
      const StreamScope one(StreamId{1});
      CHECK(StreamId::current() == StreamId{1});
    }
    CHECK(StreamId::current() == StreamId{0});
  }
  CHECK(StreamId::current() == outer);
  CHECK_THROWS_AS(StreamId{7}.executes([]() -> int { throw std::runtime_error("x"); }), std::runtime_error);
  CHECK(StreamId::current() == outer);
}

TEST_CASE("executes returns what its function returns", "[stream_id]") {
  int value = 0;
  int& same = StreamId{3}.executes([&]() -> int& {
    value = static_cast<int>(StreamId::current().value);
    return value;
  });
  CHECK(&same == &value);
  CHECK(value == 3);
}

TEST_CASE("A stream's priority is part of its id, and not of its number", "[stream_id]") {
  const StreamId normal = StreamId::allocate();
  const StreamId high = StreamId::allocate(cox::StreamPriority::High);
  CHECK(normal.priority() == cox::StreamPriority::Normal);
  CHECK(high.priority() == cox::StreamPriority::High);
  CHECK(normal.number() == normal.value);
  CHECK(high.number() == normal.number() + 1);
  CHECK(StreamId{high.number()} != high);
}

TEST_CASE("A thread that first asks inside a scope gets an id of its own after it", "[stream_id]") {
  std::thread([] {
    {
      const StreamScope scope(StreamId{5});
    }
    if (StreamId::current() == StreamId{5}) std::abort();
  }).join();
  SUCCEED();
}
