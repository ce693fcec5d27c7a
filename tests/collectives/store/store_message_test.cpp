#include <coxswain/collectives/store/store_message.hpp>
#include <coxswain/tests/collectives/store/store_contract.hpp>

#include <cstdint>
#include <random>

using cox::detail::StoreMessage;
using cox::test::bytes_of;

namespace {

StoreMessage full_message() {
  StoreMessage message;
  message.kind = StoreMessage::Kind::CompareSet;
  message.number = 0xFEDCBA98;
  message.process = 65'534;
  message.restart = 7;
  message.amount = INT64_MIN + 3;
  message.token.fill(std::byte{0xA5});
  message.key = "cox/run/0/key";
  message.text = std::string(StoreMessage::max_text, 't');
  message.value.assign(1000, std::byte{1});
  message.expected.assign(3, std::byte{2});
  return message;
}

/// The message of a frame, if its length is right.
std::optional<StoreMessage> decode_frame(const std::vector<std::byte>& frame) {
  StoreMessage::Length length{};
  std::copy_n(frame.begin(), length.size(), length.begin());
  REQUIRE(StoreMessage::length_of(length) == frame.size() - length.size());
  return StoreMessage::decode(std::span(frame).subspan(length.size()));
}

}  // namespace

TEST_CASE("A store's message is what it was after a frame") {
  const StoreMessage sent = full_message();
  const auto received = decode_frame(sent.frame());
  REQUIRE(received);
  CHECK(received->kind == sent.kind);
  CHECK(received->number == sent.number);
  CHECK(received->process == sent.process);
  CHECK(received->restart == sent.restart);
  CHECK(received->amount == sent.amount);
  CHECK(received->token == sent.token);
  CHECK(received->key == sent.key);
  CHECK(received->text == sent.text);
  CHECK(received->value == sent.value);
  CHECK(received->expected == sent.expected);
}

TEST_CASE("The largest message of the store fits its limit, and the largest Hello the limit of a Hello") {
  StoreMessage message = full_message();
  message.key = std::string(StoreMessage::max_text, 'k');
  message.value.resize(cox::Store::max_value);
  message.expected.resize(cox::Store::max_value);
  CHECK(message.frame().size() - sizeof(StoreMessage::Length) <= StoreMessage::max_message);
  message.value.clear();
  message.expected.clear();
  CHECK(message.frame().size() - sizeof(StoreMessage::Length) <= StoreMessage::max_hello);
  CHECK(decode_frame(message.frame()));
}

TEST_CASE("A message that is cut short, longer, or of another version is refused") {
  const std::vector<std::byte> frame = full_message().frame();
  const std::span<const std::byte> body = std::span(frame).subspan(sizeof(StoreMessage::Length));
  REQUIRE(StoreMessage::decode(body));
  for (std::size_t size = 0; size < body.size(); ++size) CHECK_FALSE(StoreMessage::decode(body.first(size)));
  std::vector<std::byte> changed(body.begin(), body.end());
  changed.push_back(std::byte{0});
  CHECK_FALSE(StoreMessage::decode(changed));
  changed.assign(body.begin(), body.end());
  changed[0] = std::byte{StoreMessage::version + 1};
  CHECK_FALSE(StoreMessage::decode(changed));
  for (const int kind : {0, 12, 255}) {
    changed.assign(body.begin(), body.end());
    changed[1] = static_cast<std::byte>(kind);
    CHECK_FALSE(StoreMessage::decode(changed));
  }
}

TEST_CASE("Random bytes and changed messages are decoded within their limits, or refused") {
  const auto seed = std::random_device()();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  const std::vector<std::byte> frame = full_message().frame();
  const std::vector<std::byte> body(frame.begin() + sizeof(StoreMessage::Length), frame.end());
  for (int round = 0; round < 20'000; ++round) {
    std::vector<std::byte> bytes = round % 2 == 0 ? body : std::vector<std::byte>(random() % 64);
    if (round % 2 != 0)
      for (std::byte& each : bytes) each = static_cast<std::byte>(random());
    for (unsigned n = random() % 4; n > 0 && !bytes.empty(); --n)
      bytes[random() % std::min<std::size_t>(bytes.size(), 64)] = static_cast<std::byte>(random());
    const auto message = StoreMessage::decode(bytes);
    if (!message) continue;
    CHECK(message->key.size() + message->text.size() + message->value.size() + message->expected.size() < bytes.size());
  }
}
