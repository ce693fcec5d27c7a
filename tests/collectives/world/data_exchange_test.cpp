#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/collectives/world/data_exchange.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

using namespace cox;
using namespace cox::detail::world;
using namespace cox::test;
using cox::detail::RankExchange;
using cox::detail::RankPart;
using cox::detail::SharedOperation;

namespace {

using Tcp = boost::asio::ip::tcp;

SharedOperation named(std::uint64_t operation, std::uint64_t epoch = 1) {
  const CommunicationId devices({DeviceId{0, 0, 1}, DeviceId{0, 0, 2}});
  return {.sequence = {.communicator = {.devices = devices, .epoch = epoch}}, .operation = operation};
}

/// An operation of two ranks, one in each process, with one request.
struct TestOperation final : RankExchange::Operation {
  std::vector<std::byte> memory;
  bool has_received = false;
  bool is_sent = false;
  std::string refusal;
  std::exception_ptr failure;
  RankExchange* exchange = nullptr;
  SharedOperation name = named(0);

  explicit TestOperation(std::size_t bytes) : memory(bytes) {}
  bool is_out_of_memory = false;
  [[nodiscard]] Answer accept(std::uint16_t, const std::vector<RankExchange::Announced>& ranks,
                              std::vector<std::span<std::byte>>& parts) noexcept override {
    if (is_out_of_memory) {
      failed(std::make_exception_ptr(std::bad_alloc()));
      return Answer::Aborted;
    }
    if (ranks.size() != 1) return Answer::Wrong;
    if (ranks[0].is_refused) return Answer::Accepted;
    if (ranks[0].bytes != std::vector<std::uint64_t>{memory.size()}) return Answer::Wrong;
    parts.emplace_back(memory);
    return Answer::Accepted;
  }
  [[nodiscard]] bool received(std::uint16_t, const std::string& why) noexcept override {
    has_received = true;
    refusal = why;
    return true;
  }
  void sent() noexcept override { is_sent = true; }
  void failed(const std::exception_ptr& why) noexcept override {
    failure = why;
    exchange->abort(name, why);
  }
};

/// Two processes with a connection.
struct Exchanges {
  boost::asio::io_context io;
  std::vector<std::string> ended;
  std::array<std::unique_ptr<DataExchange>, 2> of;

  Exchanges() {
    Tcp::acceptor acceptor(io, Tcp::endpoint(boost::asio::ip::address_v4::loopback(), 0));
    Tcp::socket one(io);
    one.connect(acceptor.local_endpoint());
    Tcp::socket other = acceptor.accept();
    for (std::size_t own = 0; own < 2; ++own)
      of[own] = std::make_unique<DataExchange>(
          2, [](std::uint16_t process) { return "process " + std::to_string(process); },
          [this, own](std::uint16_t process, const std::string& why) {
            ended.push_back(why);
            of[own]->lose(process, std::make_exception_ptr(CollectiveError(CollectiveError::Kind::ProcessGone, why)));
          });
    of[0]->add(1, std::make_shared<DataLink>(std::move(one)));
    of[1]->add(0, std::make_shared<DataLink>(std::move(other)));
  }
  Exchanges(const Exchanges&) = delete;
  Exchanges& operator=(const Exchanges&) = delete;
  ~Exchanges() {
    for (auto& exchange : of)
      exchange->lose_all(std::make_exception_ptr(CollectiveError(CollectiveError::Kind::WorldGone, "the test ends")));
    io.poll();
  }

  std::shared_ptr<TestOperation> expect(std::size_t process, std::uint64_t operation, std::size_t bytes,
                                        std::uint64_t epoch = 1) {
    const auto made = std::make_shared<TestOperation>(bytes);
    made->exchange = of[process].get();
    made->name = named(operation, epoch);
    of[process]->expect(made->name, {static_cast<std::uint16_t>(2 - process)}, made);
    return made;
  }
  void send(std::size_t process, std::uint64_t operation, std::span<const std::byte> bytes, std::string refusal = "",
            std::uint64_t epoch = 1) {
    RankPart part{.place = static_cast<std::uint16_t>(process), .refusal = std::move(refusal), .data = {bytes}};
    of[process]->send(named(operation, epoch), {{.process = static_cast<std::uint16_t>(2 - process), .parts = {part}}});
  }
  template <class Done>
  void run_until(const Done& done) {
    while (!done()) io.run_one();
  }
};

std::vector<std::byte> bytes_of(std::size_t count, unsigned value) {
  return std::vector<std::byte>(count, static_cast<std::byte>(value));
}

}  // namespace

TEST_CASE("Inputs go into the memory that the operation of the other process names") {
  Exchanges t;
  const std::vector<std::byte> small = bytes_of(10, 1);
  const std::vector<std::byte> large = bytes_of(5'000'000, 2);
  for (const auto* input : {&small, &large}) {
    const std::uint64_t operation = input == &small ? 1 : 2;
    const auto one = t.expect(0, operation, input->size());
    const auto other = t.expect(1, operation, input->size());
    t.send(0, operation, *input);
    t.send(1, operation, *input);
    t.run_until([&] { return one->has_received && other->has_received && one->is_sent && other->is_sent; });
    CHECK(one->memory == *input);
    CHECK(other->memory == *input);
    CHECK(one->refusal.empty());
  }
}

TEST_CASE("Inputs that arrive before their operation is known wait for it") {
  Exchanges t;
  const std::vector<std::byte> input = bytes_of(100'000, 3);
  CHECK(t.of[0]->awaited() == std::vector{false, false});
  const auto first = t.expect(0, 1, input.size());
  CHECK(t.of[0]->awaited() == std::vector{false, true});
  t.send(0, 1, input);
  for (int i = 0; i < 20; ++i) t.io.poll_one();
  const auto late = t.expect(1, 1, input.size());
  t.send(1, 1, input);
  t.run_until([&] { return late->has_received && first->has_received; });
  CHECK(late->memory == input);
  CHECK(t.of[0]->awaited() == std::vector{false, false});
}

TEST_CASE("A rank that cannot take part says why") {
  Exchanges t;
  const auto one = t.expect(0, 1, 8);
  const auto other = t.expect(1, 1, 8);
  t.send(0, 1, {}, "its memory is poisoned");
  t.run_until([&] { return other->has_received; });
  CHECK(other->refusal == "its memory is poisoned");
}

TEST_CASE("An operation that one process aborts fails in the other, and what is sent of it later is discarded") {
  Exchanges t;
  const std::vector<std::byte> input = bytes_of(100'000, 3);
  const auto one = t.expect(0, 1, input.size());
  const auto other = t.expect(1, 1, input.size());
  t.of[0]->abort(named(1), std::make_exception_ptr(CollectiveError(CollectiveError::Kind::Timeout, "too late")));
  t.send(1, 1, input);  // crosses the notice
  t.run_until([&] { return other->failure != nullptr; });
  CHECK(kind_of<CollectiveError>([&] { std::rethrow_exception(other->failure); }) == CollectiveError::Kind::Timeout);
  CHECK_THAT(message_of([&] { std::rethrow_exception(other->failure); }),
             Catch::Matchers::ContainsSubstring("process 0 has aborted the operation: too late"));
  CHECK_FALSE(one->has_received);
  const auto next = t.expect(0, 2, input.size());
  const auto its = t.expect(1, 2, input.size());
  t.send(0, 2, input);
  t.send(1, 2, input);
  t.run_until([&] { return next->has_received && its->has_received; });
  CHECK(next->memory == input);
  CHECK(t.ended.empty());
}

TEST_CASE("An operation that was aborted before it is known here fails at once") {
  Exchanges t;
  const auto one = t.expect(0, 1, 8);
  t.of[0]->abort(named(1), std::make_exception_ptr(CollectiveError(CollectiveError::Kind::Timeout, "too late")));
  const auto before = t.expect(0, 2, 8);
  t.send(0, 2, bytes_of(8, 1));
  for (int i = 0; i < 20; ++i) t.io.poll_one();
  const auto other = t.expect(1, 1, 8);
  t.run_until([&] { return other->failure != nullptr; });
  CHECK(kind_of<CollectiveError>([&] { std::rethrow_exception(other->failure); }) == CollectiveError::Kind::Timeout);
}

TEST_CASE("Operations of many epochs that were aborted elsewhere do not end the connection") {
  Exchanges t;
  constexpr std::uint64_t epochs = 5000;  // more than may be remembered
  const auto too_late = std::make_exception_ptr(CollectiveError(CollectiveError::Kind::Timeout, "too late"));
  for (std::uint64_t epoch = 1; epoch <= epochs; ++epoch) {
    const auto one = t.expect(0, 1, 8, epoch);
    t.of[0]->abort(named(1, epoch), too_late);
    t.io.poll();
  }
  const auto other = t.expect(1, 1, 8, epochs);
  t.run_until([&] { return other->failure != nullptr; });
  CHECK(kind_of<CollectiveError>([&] { std::rethrow_exception(other->failure); }) == CollectiveError::Kind::Timeout);
  CHECK(t.ended.empty());
}

TEST_CASE("Inputs of an earlier epoch are discarded") {
  Exchanges t;
  const std::vector<std::byte> input = bytes_of(1000, 3);
  const auto old = t.expect(0, 1, input.size());
  t.send(0, 1, input);
  const auto next = t.expect(1, 1, 8, 2);
  const auto its = t.expect(0, 1, 8, 2);
  const std::vector<std::byte> last = bytes_of(8, 9);
  t.send(0, 1, last, "", 2);
  t.run_until([&] { return next->has_received; });
  CHECK(next->memory == last);
}

TEST_CASE("An operation without memory for its inputs fails in both processes, and the connection goes on") {
  Exchanges t;
  const std::vector<std::byte> input = bytes_of(100'000, 3);
  const auto one = t.expect(0, 1, input.size());
  const auto other = t.expect(1, 1, input.size());
  other->is_out_of_memory = true;
  t.send(0, 1, input);
  t.run_until([&] { return one->failure != nullptr; });
  CHECK(other->failure != nullptr);
  CHECK_FALSE(other->has_received);
  const auto next = t.expect(0, 2, input.size());
  const auto its = t.expect(1, 2, input.size());
  t.send(0, 2, input);
  t.run_until([&] { return its->has_received; });
  CHECK(its->memory == input);
  CHECK(t.ended.empty());
}

TEST_CASE("Inputs of the wrong size end the connection, and what waits for the process fails") {
  Exchanges t;
  const auto one = t.expect(0, 1, 8);
  const auto other = t.expect(1, 1, 16);
  t.send(0, 1, bytes_of(8, 1));
  t.run_until([&] { return other->failure != nullptr && one->failure != nullptr; });
  CHECK(kind_of<CollectiveError>([&] { std::rethrow_exception(one->failure); }) == CollectiveError::Kind::ProcessGone);
  CHECK_FALSE(other->has_received);
  CHECK(t.ended.size() == 2);
  const auto later = t.expect(0, 2, 8);
  CHECK(later->failure != nullptr);
}

TEST_CASE("What has been sent and received in full does not fail when the process is gone") {
  Exchanges t;
  const std::vector<std::byte> input = bytes_of(8, 1);
  const auto one = t.expect(0, 1, input.size());
  const auto other = t.expect(1, 1, input.size());
  t.send(0, 1, input);
  t.send(1, 1, input);
  t.run_until([&] { return one->has_received && one->is_sent; });
  t.of[0]->lose(1, std::make_exception_ptr(CollectiveError(CollectiveError::Kind::ProcessGone, "gone")));
  CHECK(one->failure == nullptr);
  t.run_until([&] { return other->has_received || other->failure != nullptr; });
  CHECK(other->has_received);  // what was sent before the end arrives
  CHECK(other->failure == nullptr);
}

TEST_CASE("What has been received in full, but not sent, fails when the process is gone") {
  Exchanges t;
  const std::vector<std::byte> small = bytes_of(10, 1);
  const std::vector<std::byte> large = bytes_of(20'000'000, 2);  // more than the connection takes
  const auto unknown = t.expect(0, 5, small.size());
  t.send(0, 5, small);  // process 1 does not read further: it does not expect this
  const auto one = t.expect(0, 1, large.size());
  const auto other = t.expect(1, 1, large.size());
  t.send(0, 1, large);
  t.send(1, 1, large);
  t.run_until([&] { return one->has_received; });
  t.of[1]->lose_all(std::make_exception_ptr(CollectiveError(CollectiveError::Kind::WorldGone, "it ends")));
  t.run_until([&] { return !t.ended.empty(); });
  CHECK_FALSE(one->is_sent);
  CHECK(one->failure != nullptr);
}

TEST_CASE("A process that loses the world does not tell the others that theirs is gone") {
  Exchanges t;
  const auto one = t.expect(0, 1, 8);
  const auto other = t.expect(1, 1, 8);
  t.of[1]->lose_all(std::make_exception_ptr(CollectiveError(CollectiveError::Kind::WorldGone, "the leader is gone")));
  t.run_until([&] { return one->failure != nullptr; });
  CHECK(kind_of<CollectiveError>([&] { std::rethrow_exception(one->failure); }) == CollectiveError::Kind::ProcessGone);
}
