#include <coxswain/collectives/leader/world_message.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <variant>
#include <vector>

using namespace cox;
using namespace cox::detail::world;
using Kind = CollectiveError::Kind;

namespace {

std::vector<DeviceId> some_devices() { return {{0, 0, 1}, {0, 1, 1}, {0, 0, 2}, {1, 7, 0x1234}}; }

ProcessFacts some_facts() {
  return {.host = "node7",
          .pid = 4711,
          .restart = 2,
          .versions = "NCCL 2.28.9",
          .data_address = "10.0.0.7",
          .data_port = 40001,
          .devices = some_devices()};
}

/// One message of each type at least, with all members set.
std::vector<Message> corpus() {
  const std::uint64_t large = 0x0123456789abcdef;
  Token token{};
  token[0] = std::byte{1};
  token[15] = std::byte{0xff};
  return {
      Hello{.token = token, .library = "1.2", .run = "run", .process = 3, .processes = 8, .facts = some_facts()},
      Rejected{"another version"},
      Welcome{{some_facts(), ProcessFacts{}, some_facts()}, large},
      Heartbeat{},
      Bye{"done"},
      Open{.number = large, .devices = some_devices(), .epoch = 2, .timeout = std::chrono::minutes(10)},
      Open{.number = 4, .devices = some_devices(), .epoch = 2, .direction = {0, 3}, .timeout = {}},
      Ask{.number = 4,
          .operation = large,
          .fingerprint = {std::byte{1}, std::byte{0}, std::byte{255}},
          .description = "all_reduce (sum) of 4 f32 at train.cpp:31",
          .awaited = {{5, 6}, {7, large}}},
      Ask{},
      Refuse{.number = 4, .operation = 5, .kind = Kind::WouldDeadlock, .text = "a ring"},
      Break{.number = 4, .from = 9, .kind = Kind::Timeout, .text = "rank 1"},
      Progress{.number = 4, .completed = large},
      Close{large},
      Answer{.question = 8, .text = "host:0 waits for host:1"},
      Release{.number = 4, .operation = 5, .turn = large},
      Refused{.number = 4, .operation = 5, .kind = Kind::Mismatch, .text = "two requests"},
      Broken{.devices = some_devices(),
             .epoch = 3,
             .ends = {{{}, 7}, {{0, 3}, large}},
             .kind = Kind::WorldGone,
             .process = 2,
             .text = "killed"},
      Why{.question = 8, .devices = some_devices(), .epoch = 3, .direction = {3, 0}, .operation = 12},
      Gone{.process = 2, .kind = Kind::ProcessSilent, .text = "killed by signal 9"},
      Joined{.process = 2, .facts = some_facts()},
      Connected{},
      Awaited{.text = "process 3 did not join the world"},
      DataHello{.token = {}, .process = 3, .restart = 1},
      Inputs{
          .of = {.devices = some_devices(), .epoch = 3, .direction = {3, 0}, .operation = 12},
          .ranks = {{.place = 1, .refusal = "no data", .bytes = {}}, {.place = 2, .refusal = "", .bytes = {4, large}}}},
      AbortedOperation{.of = {.devices = some_devices(), .epoch = 1, .direction = {}, .operation = large},
                       .kind = Kind::ProcessGone,
                       .text = "a process is gone"},
      Open{.number = 4, .devices = some_devices(), .epoch = 2, .direction = creation_direction, .timeout = {}},
      Share{.of = {.devices = some_devices(), .epoch = 3, .direction = creation_direction, .operation = 1},
            .bytes = {std::byte{7}, std::byte{0}}},
      Mark{.id = large,
           .of = {.devices = some_devices(), .epoch = 3, .direction = {3, 0}, .operation = 12},
           .kind = Kind::ProcessGone,
           .text = "no data"},
      MarkNoted{large},
      LinkCheck{.kind = LinkCheck::Kind::Broken, .process = 2, .restart = 3, .bytes = large},
  };
}

bool is_message(std::span<const std::byte> frame) {
  try {
    static_cast<void>(decode(frame));
  } catch (const MalformedMessage&) {
    return false;
  }
  return true;
}

const Hello* hello_of_other_version(const Message& message) {
  const Hello* const hello = std::get_if<Hello>(&message);
  return hello != nullptr && hello->protocol != protocol_version ? hello : nullptr;
}

}  // namespace

TEST_CASE("A message of a world is decoded as it was encoded") {
  std::vector<bool> types(std::variant_size_v<Message>);
  for (const Message& message : corpus()) {
    INFO("type " << message.index() + 1);
    types[message.index()] = true;
    CHECK(decode(encode(message)) == message);
  }
  CHECK(std::ranges::count(types, false) == 0);
}

TEST_CASE("The bytes of a message are little endian, without padding") {
  const auto bytes = [](std::initializer_list<int> values) {
    std::vector<std::byte> out;
    for (const int value : values) out.push_back(static_cast<std::byte>(value));
    return out;
  };
  CHECK(encode(Release{.number = 0x0102, .operation = 3, .turn = 0xff}) ==
        bytes({13, 2, 1, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0xff, 0, 0, 0, 0, 0, 0, 0}));
  CHECK(encode(Gone{.process = 0x0201, .text = "ab"}) == bytes({17, 1, 2, 8, 2, 0, 0, 0, 'a', 'b'}));
  CHECK(encode(Heartbeat{.sent = 1, .heard = 2, .held = 3}) ==
        bytes({4, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0}));
}

TEST_CASE("No part of a message, and no message with more bytes, is decoded") {
  for (const Message& message : corpus()) {
    INFO("type " << message.index() + 1);
    const auto frame = encode(message);
    for (std::size_t size = 0; size < frame.size(); ++size) CHECK_FALSE(is_message(std::span(frame).first(size)));
    auto longer = frame;
    longer.push_back(std::byte{0});
    CHECK_FALSE(is_message(longer));
  }
  CHECK_FALSE(is_message(std::vector<std::byte>(1, std::byte{0})));
  CHECK_FALSE(is_message(std::vector<std::byte>(1, static_cast<std::byte>(std::variant_size_v<Message> + 1))));
  CHECK_FALSE(is_message(std::vector<std::byte>(max_frame + 1, std::byte{4})));
}

TEST_CASE("A check of a link of an unknown kind is no message") {
  auto frame = encode(LinkCheck{.kind = LinkCheck::Kind::Broken});
  REQUIRE(is_message(frame));
  CHECK(frame[1] == std::byte{2});
  for (int kind = 3; kind < 256; ++kind) {
    frame[1] = static_cast<std::byte>(kind);
    CHECK_FALSE(is_message(frame));
  }
}

TEST_CASE("A Hello of another protocol version gives its version, one of another program nothing") {
  auto frame = encode(corpus().front());
  frame[5] = std::byte{9};
  frame.resize(frame.size() - 3);  // their members are not ours
  const Message message = decode(frame);
  const Hello* const hello = hello_of_other_version(message);
  REQUIRE(hello != nullptr);
  CHECK(*hello == Hello{.protocol = 9});
  frame[1] = std::byte{'X'};
  CHECK_FALSE(is_message(frame));
}

TEST_CASE("Texts and timeouts are cut to their limits, and larger messages are not encoded") {
  // "ü" has two bytes, the second of which would be the first one cut off.
  const std::string text = std::string(max_text - 1, 'x') + "\u00fc" + "y";
  CHECK(std::get<Bye>(decode(encode(Bye{text}))).text == std::string(max_text - 1, 'x'));
  CHECK(std::get<Bye>(decode(encode(Bye{std::string(max_text, 'x')}))).text.size() == max_text);
  CHECK(std::get<Ask>(decode(encode(Ask{.description = std::string(9999, 'x')}))).description.size() ==
        max_description);
  CHECK(std::get<Open>(decode(encode(Open{.timeout = std::chrono::milliseconds::max()}))).timeout == max_timeout);
  CHECK(std::get<Open>(decode(encode(Open{.timeout = std::chrono::milliseconds(-1)}))).timeout.count() == 0);

  CHECK_NOTHROW(encode(Open{.devices = std::vector<DeviceId>(max_devices)}));
  CHECK_THROWS_AS(encode(Open{.devices = std::vector<DeviceId>(max_devices + 1)}), MalformedMessage);
  CHECK_NOTHROW(encode(Ask{.fingerprint = std::vector<std::byte>(max_fingerprint)}));
  CHECK_THROWS_AS(encode(Ask{.fingerprint = std::vector<std::byte>(max_fingerprint + 1)}), MalformedMessage);
  CHECK_THROWS_AS(encode(Open{.direction = {1, all_ranks}}), MalformedMessage);
  ProcessFacts facts;
  facts.devices.resize(max_devices);
  CHECK_THROWS_AS(encode(Welcome{.processes = std::vector<ProcessFacts>(50, facts)}),
                  MalformedMessage);  // more than 1 MiB
}

TEST_CASE("A length that the frame has no bytes for is refused before memory is allocated for it") {
  for (const Message& message : corpus()) {
    const auto frame = encode(message);
    for (std::size_t at = 1; at + 4 <= frame.size(); ++at) {
      auto damaged = frame;
      std::fill_n(damaged.begin() + static_cast<std::ptrdiff_t>(at), 4, std::byte{0xff});
      try {
        const Message decoded = decode(damaged);  // it was not a length
        CHECK((hello_of_other_version(decoded) != nullptr || encode(decoded) == damaged));
      } catch (const MalformedMessage&) {
        continue;
      }
    }
  }
}

TEST_CASE("Random and damaged frames are refused, or are messages that encode to the same bytes") {
  std::mt19937 random(7);  // NOLINT(cert-msc51-cpp): a fixed seed
  std::vector<std::vector<std::byte>> frames;
  for (const Message& message : corpus()) frames.push_back(encode(message));
  std::vector<std::size_t> decoded(frames.size());
  for (int round = 0; round < 100'000; ++round) {
    const std::size_t which = random() % frames.size();
    auto frame = frames[which];
    for (unsigned changes = random() % 4; changes > 0; --changes) {
      const auto at = static_cast<std::ptrdiff_t>(random() % frame.size());
      switch (random() % 5) {
        case 0: frame[static_cast<std::size_t>(at)] = static_cast<std::byte>(random()); break;
        case 1: frame[static_cast<std::size_t>(at)] ^= static_cast<std::byte>(1U << (random() % 8)); break;
        case 2: frame.insert(frame.begin() + at, static_cast<std::byte>(random())); break;
        case 3:
          if (frame.size() > 1) frame.erase(frame.begin() + at);
          break;
        default: {  // the end of another message
          const auto& other = frames[random() % frames.size()];
          frame.resize(static_cast<std::size_t>(at));
          frame.insert(frame.end(), other.begin() + static_cast<std::ptrdiff_t>(random() % other.size()), other.end());
        }
      }
      if (frame.empty()) frame.push_back(std::byte{1});
    }
    try {
      const Message message = decode(frame);
      ++decoded[which];
      if (hello_of_other_version(message) == nullptr && encode(message) != frame) FAIL("not the same bytes");
    } catch (const MalformedMessage&) {
      continue;
    }
  }
  for (const std::size_t count : decoded) CHECK(count > 500);
}
