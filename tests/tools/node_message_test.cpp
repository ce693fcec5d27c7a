#include <coxswain/tests/support/catch.hpp>

#include <coxswain/tools/cox/nodes/node_message.hpp>

#include <cstddef>
#include <random>
#include <span>
#include <string>
#include <variant>
#include <vector>

using namespace cox::tools;
using cox::detail::world::MalformedMessage;

namespace {

cox::detail::WorldToken some_token() {
  cox::detail::WorldToken token{};
  token.fill(std::byte{7});
  return token;
}

const std::vector<NodeMessage> one_of_each{
    NodeHello{.token = some_token(), .library = "1.2.3", .node = 3, .nodes = 5, .processes = 8, .host = "h", .pid = 9},
    NodeStarted{.error = 2, .pids = {4711, 4712}},
    ProcessEnded{.process = 1,
                 .code = 86,
                 .signal = 9,
                 .before_failure = true,
                 .kept_bytes = 1ULL << 40U,
                 .holds_memory = true,
                 .gpu_memory_is_lost = true,
                 .report = "{}"},
    NodeFinished{.keeps = true, .progresses = true, .holds_memory = true, .kept_bytes = 5},
    NodeSignal{.number = 15},
    NodeHeartbeat{},
    NodeRejected{.text = "no", .may_retry = true},
    StartNode{.restart = 3,
              .first_process = 2,
              .processes = 9,
              .leader_port = 40'000,
              .token = some_token(),
              .run = "run",
              .last_fault = "{}"},
    FailureNoted{},
    SignalNode{.process = 4, .number = 9},
    FinishNode{.gpu_memory_is_lost = true},
    EndNode{.code = 87, .text = "why"}};

NodeMessage decoded(std::span<const std::byte> bytes) {
  NodeMessage message;
  decode_into(message, bytes);
  return message;
}

}  // namespace

TEST_CASE("Each message between agents is decoded as it was encoded, and no part of it is a message") {
  REQUIRE(one_of_each.size() == std::variant_size_v<NodeMessage>);
  for (std::size_t type = 0; type < one_of_each.size(); ++type) {
    CAPTURE(type);
    REQUIRE(one_of_each[type].index() == type);
    std::vector<std::byte> bytes = encode(one_of_each[type]);
    CHECK(decoded(bytes) == one_of_each[type]);
    for (std::size_t size = 0; size < bytes.size(); ++size)
      CHECK_THROWS_AS(decoded(std::span(bytes).first(size)), MalformedMessage);
    bytes.push_back(std::byte{0});
    CHECK_THROWS_AS(decoded(bytes), MalformedMessage);
  }
}

TEST_CASE("Random bytes are a message between agents or malformed") {
  std::mt19937_64 random(7);
  std::size_t malformed = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::vector<std::byte> bytes = encode(one_of_each[random() % one_of_each.size()]);
    bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    try {
      const NodeMessage message = decoded(bytes);
      CHECK(decoded(encode(message)) == message);
    } catch (const MalformedMessage&) {
      ++malformed;
    }
  }
  CHECK(malformed > 1000);
}

TEST_CASE("A hello of another protocol version gives that version only") {
  std::vector<std::byte> bytes = encode(one_of_each[0]);
  bytes[5] = std::byte{9};  // after the type and the four bytes of the program
  bytes.push_back(std::byte{1});
  CHECK(decoded(bytes) == NodeMessage(NodeHello{.protocol = 9}));
}

TEST_CASE("The report of a fault that is too large is cut, and a hello is small") {
  const ProcessEnded ended{.report = std::string(max_fault_report + 10, 'x')};
  CHECK(std::get<ProcessEnded>(decoded(encode(ended))).report.size() == max_fault_report);
  CHECK(encode(NodeHello{.library = std::string(300, 'x'), .host = std::string(300, 'y')}).size() <= max_node_hello);
}
