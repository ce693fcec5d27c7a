#include <coxswain/tests/support/catch.hpp>

#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/servers/host/stream/host_stream.hpp>

#include <future>
#include <memory>
#include <stdexcept>
#include <vector>

using cox::StreamId;
using cox::detail::HostEvents;
using cox::detail::HostStream;
using cox::detail::HostThreads;
using cox::detail::Timeline;

namespace {

std::shared_ptr<HostStream> make_stream(HostThreads& threads, std::uint64_t id) {
  return std::make_shared<HostStream>(cox::Location{{}, StreamId{id}}, threads, cox::StreamSlot{0},
                                      std::make_shared<Timeline>());
}

}  // namespace

TEST_CASE("A stream runs its pieces in order, under its own StreamId") {
  HostThreads threads("test", 2);
  const auto stream = make_stream(threads, 41);
  std::vector<int> order;
  for (int i = 0; i < 1000; ++i)
    stream->submit({}, [&order, i] {
      order.push_back(i);
      if (StreamId::current() != StreamId{41}) order.push_back(-1);
    });
  stream->drain();
  REQUIRE(order.size() == 1000);
  for (std::size_t i = 0; i < 1000; ++i) REQUIRE(order[i] == static_cast<int>(i));
}

TEST_CASE("A piece that waits for another stream holds up its own stream, but no thread") {
  HostThreads threads("test", 1);
  const auto first = make_stream(threads, 1);
  const auto second = make_stream(threads, 2);
  std::vector<int> order;
  std::promise<void> gate;
  const std::shared_future<void> opened = gate.get_future().share();

  // With one thread: were it blocked by the waiting piece, nothing would ever run.
  const auto event = first->next_event();
  first->submit({}, [&order, opened] {
    opened.wait();
    order.push_back(1);
  });
  HostEvents waits;
  waits.push_back(event);
  second->submit(std::move(waits), [&order] { order.push_back(2); });
  second->submit({}, [&order] { order.push_back(3); });
  gate.set_value();
  second->drain();
  REQUIRE(order == std::vector<int>{1, 2, 3});
}

TEST_CASE("L6: the captures of a piece are gone before its event is reached") {
  HostThreads threads("test", 1);
  const auto stream = make_stream(threads, 1);
  const auto life = std::make_shared<int>();
  for (int i = 0; i < 100; ++i) {
    stream->submit({}, [life] {});
    stream->drain();
    REQUIRE(life.use_count() == 1);
  }
}

TEST_CASE("L5: what a piece throws joins the stream's errors, and later pieces run") {
  HostThreads threads("test", 1);
  const auto stream = make_stream(threads, 1);
  stream->submit({}, [] { throw std::runtime_error("boom"); });
  bool ran = false;
  stream->submit({}, [&ran] { ran = true; });
  stream->drain();
  REQUIRE(ran);
  REQUIRE_FALSE(stream->idle());
  const auto error = stream->take_errors(std::source_location::current());
  REQUIRE(cox::describe(error).find("boom") != std::string::npos);
  REQUIRE(stream->idle());
}
