// What a connection of a world does with bytes that are no message, and with messages that do not belong there: it
// ends, and nothing else does.

#include <coxswain/tests/collectives/world/raw_process.hpp>
#include <coxswain/tests/collectives/world/session_member.hpp>
#include <coxswain/tests/collectives/world/world_of_three.hpp>
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/temporary_folder.hpp>

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <future>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

using namespace cox;
using namespace cox::test;
using namespace cox::detail::world;
using namespace std::chrono_literals;

namespace {

using Bytes = std::vector<std::byte>;
using Random = std::mt19937_64;

std::uint64_t below(Random& random, std::uint64_t bound) { return random() % bound; }

Bytes length_prefix(std::uint32_t bytes) {
  Bytes prefix;
  for (unsigned i = 0; i < 4; ++i) prefix.push_back(static_cast<std::byte>(bytes >> (8 * i)));
  return prefix;
}
Bytes garbage(Random& random, std::size_t count) {
  Bytes bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}
Bytes framed(const Bytes& content) {
  Bytes frame = length_prefix(static_cast<std::uint32_t>(content.size()));
  frame.insert(frame.end(), content.begin(), content.end());
  return frame;
}

/// Bytes that no connection may accept as its first message. `right` is the message that it expects.
std::vector<Bytes> malformed(const Message& right, Random& random) {
  std::vector<Bytes> corpus;
  corpus.push_back({});                           // nothing
  corpus.push_back(length_prefix(0));             // no message
  corpus.push_back(length_prefix(0xffff'ffffU));  // too large
  corpus.push_back(length_prefix(max_frame + 1));
  corpus.push_back(framed(Bytes(100, std::byte{0})));    // no type
  corpus.push_back(framed(Bytes(100, std::byte{200})));  // unknown type
  corpus.push_back(framed(garbage(random, 100)));
  const std::string request = "GET / HTTP/1.1\r\nHost: example.org\r\nAccept: */*\r\n\r\n";
  corpus.emplace_back();
  for (const char c : request) corpus.back().push_back(static_cast<std::byte>(c));
  const Bytes whole = frame_of(right);
  for (std::size_t cut : {std::size_t{1}, std::size_t{4}, std::size_t{5}, whole.size() / 2, whole.size() - 1})
    corpus.emplace_back(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(cut));
  for (int i = 0; i < 40; ++i) {  // a byte of its content is another one: the token, the number, a length, ...
    Bytes changed = whole;
    changed[4 + below(random, std::min<std::size_t>(25, whole.size() - 4))] ^=
        static_cast<std::byte>(1 + below(random, 255));
    corpus.push_back(changed);
  }
  for (int i = 0; i < 20; ++i) corpus.push_back(garbage(random, 1 + below(random, 300)));
  return corpus;
}

/// A message of any type with small random members, of which some fit together by chance.
Message random_message(Random& random) {
  const auto number = [&] { return below(random, 4); };
  const auto text = [&] { return std::string(below(random, 20), 'x'); };
  const auto kind = [&] { return static_cast<CollectiveError::Kind>(below(random, 8)); };
  const auto process = [&] { return static_cast<std::uint16_t>(below(random, 4)); };
  const auto devices = [&] {
    std::vector<DeviceId> all;
    for (std::uint16_t each = 0; each < 3; ++each)
      if (below(random, 3) != 0) all.push_back({0, each, static_cast<std::uint16_t>(each + 1)});
    if (below(random, 8) == 0) all.push_back({static_cast<std::uint16_t>(number()), process(), process()});
    return all;
  };
  const auto direction = [&] { return below(random, 3) == 0 ? Direction{process(), process()} : Direction{}; };
  const auto of_all = [&] { return OperationOfAll{devices(), number(), direction(), number()}; };
  switch (below(random, 16)) {
    case 0: return Hello{.run = text(), .process = process(), .processes = process(), .facts = {.host = text()}};
    case 1: return Welcome{.processes = {{.host = text()}}, .max_ahead = number()};
    case 2: return Heartbeat{};
    case 3:
    case 4:
    case 5: return Open{number(), devices(), number(), direction(), std::chrono::milliseconds(below(random, 100))};
    case 6:
    case 7:
    case 8: {
      Ask ask{
          .number = number(), .operation = number(), .fingerprint = garbage(random, number()), .description = text()};
      for (std::uint64_t i = below(random, 3); i > 0; --i) ask.awaited.push_back({number(), number()});
      return ask;
    }
    case 9: return Refuse{number(), number(), kind(), text()};
    case 10: return Break{number(), number(), kind(), text()};
    case 11: return Progress{number(), number()};
    case 12: return Close{number()};
    case 13: return Answer{number(), text()};
    case 14: return Inputs{.of = of_all(), .ranks = {{.place = process(), .refusal = text(), .bytes = {number()}}}};
    default: return AbortedOperation{of_all(), kind(), text()};
  }
}

[[maybe_unused]] double process_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

}  // namespace

TEST_CASE("A connection whose first message is not a Hello ends alone, and the world starts") {
  Random random(1);
  const TemporaryFolder folder;
  SessionMember first(folder, 0, 2, {.identified_within = 200ms});
  auto joined = std::async(std::launch::async, [&] { first.session.join(); });
  const RawProcess raw(folder, 1, 2);
  std::vector<RawConnection> connections;
  for (const Bytes& bytes : malformed(raw.hello(), random)) {
    connections.push_back(raw.connect());
    connections.back().send(bytes);
  }
  for (RawConnection& connection : connections) CHECK(connection.is_closed_by_other());
  CHECK(joined.wait_for(0s) == std::future_status::timeout);
  SessionMember second(folder, 1, 2);
  second.session.join();
  joined.get();
  CHECK(first.session.processes()[1].host == "here");
  second.leave();
  first.leave();
}

TEST_CASE("A process that sends something else after its Hello, before the start, may join again") {
  Random random(2);
  const TemporaryFolder folder;
  SessionMember first(folder, 0, 3);
  auto joined = std::async(std::launch::async, [&] { first.session.join(); });
  const RawProcess raw(folder, 1, 3);
  for (const Bytes& bytes : {length_prefix(0), length_prefix(0x7fff'ffffU), framed(Bytes(10, std::byte{99})),
                             framed(garbage(random, 50)), Bytes{}}) {
    RawConnection connection = raw.connect();
    CHECK(connection.send(raw.hello()));
    connection.send(bytes);
    connection.end_sending();
    CHECK(connection.is_closed_by_other());
  }
  SessionMember second(folder, 1, 3);
  SessionMember third(folder, 2, 3);
  auto also = std::async(std::launch::async, [&] { second.session.join(); });
  third.session.join();
  also.get();
  joined.get();
  CHECK(first.session.processes()[1].host == "here");
  third.leave();
  second.leave();
  first.leave();
}

TEST_CASE("A data connection whose first message is wrong ends alone, and the world starts") {
  Random random(3);
  const TemporaryFolder folder;
  SessionMember first(folder, 0, 2, {.identified_within = 200ms});
  auto joined = std::async(std::launch::async, [&] { first.session.join(); });
  const RawProcess raw(folder, 1, 2);
  RawConnection control = raw.connect();
  control.send(raw.hello());
  const Message message = control.receive();
  const ProcessFacts leader = std::get<Welcome>(message).processes.at(0);
  DataHello other = raw.data_hello();
  other.process = 0;
  std::vector<Bytes> corpus = malformed(raw.data_hello(), random);
  corpus.push_back(frame_of(other));
  other.process = 7;
  corpus.push_back(frame_of(other));
  std::erase_if(corpus, [&](const Bytes& bytes) {
    // A change of the restart: that of a successor.
    try {
      const Message changed = decode(std::span(bytes).subspan(std::min<std::size_t>(4, bytes.size())));
      const auto* const hello = std::get_if<DataHello>(&changed);
      return hello != nullptr && hello->token == raw.data_hello().token && hello->process == 1;
    } catch (const MalformedMessage&) {
      return false;
    }
  });
  std::vector<RawConnection> connections;
  for (const Bytes& bytes : corpus) {
    connections.emplace_back(leader.data_address, leader.data_port);
    connections.back().send(bytes);
  }
  for (RawConnection& connection : connections) CHECK(connection.is_closed_by_other());
  CHECK(joined.wait_for(0s) == std::future_status::timeout);
  RawConnection data(leader.data_address, leader.data_port);
  data.send(raw.data_hello());
  control.send(Connected{});
  joined.get();
  control.send(Bye{});
  CHECK(control.is_closed_by_other());
  first.leave();
}

TEST_CASE("A process that sends wrong messages to the leader is gone, and the others go on") {
  for (std::uint64_t seed = 1; seed <= 25; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    WorldOfThree world;
    RawConnection& control = world.raw.control();
    for (std::uint64_t i = below(random, 40); i > 0 && control.send(random_message(random)); --i) continue;
    // The last ones are wrong at all times.
    if (seed % 3 == 0) control.send(frame_of(DataHello{}));
    if (seed % 3 == 1) control.send(framed(garbage(random, 1 + below(random, 60))));
    if (seed % 3 == 2) control.send(length_prefix(0xffff'fff0U));
    control.send(length_prefix(0));
    CHECK(control.is_closed_by_other());
    world.check_others();
  }
}

TEST_CASE("A data connection that carries wrong bytes ends, and those between the others go on") {
  for (std::uint64_t seed = 1; seed <= 15; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    WorldOfThree world;
    for (RawConnection* data : {&world.raw.data(0), &*world.data_of_last}) {
      switch (seed % 5) {
        case 0: data->send(length_prefix(0xffff'ffffU)); break;
        case 1: data->send(framed(garbage(random, 1 + below(random, 200)))); break;
        case 2: data->send(frame_of(Heartbeat{})); break;
        case 3: {
          const Bytes whole = frame_of(Inputs{.of = {.devices = {{0, 0, 1}, {0, 1, 2}}, .operation = 1}});
          data->send(std::span(whole).first(whole.size() / 2));
          break;
        }
        default: data->send(frame_of(random_message(random)));
      }
      data->send(length_prefix(0));
      data->end_sending();
    }
    if (seed % 5 != 4) {  // an operation that is not known yet is not read further
      CHECK(world.raw.data(0).is_closed_by_other());
    }
    world.raw.control().send(Bye{});
    CHECK(world.raw.control().is_closed_by_other());
    world.check_others();
  }
}

// Not under the address sanitizer: what it checks of each object needs a descriptor.
#ifndef __SANITIZE_ADDRESS__
TEST_CASE("A process without free descriptors waits for some, and uses no processor for that") {
  const TemporaryFolder folder;
  SessionMember first(folder, 0, 2);
  auto joined = std::async(std::launch::async, [&] { first.session.join(); });
  const RawProcess raw(folder, 1, 2);
  RawConnection waiting;
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  const int next = ::dup(0);
  ::close(next);
  const rlimit none{.rlim_cur = static_cast<rlim_t>(next), .rlim_max = before.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &none);
  std::vector<int> taken;  // gaps below the limit
  for (int each = ::dup(0); each >= 0; each = ::dup(0)) taken.push_back(each);
  const double used = process_seconds();
  waiting.connect(raw.address(), raw.port());
  CHECK(joined.wait_for(500ms) == std::future_status::timeout);
  CHECK(process_seconds() - used < 0.25);
  ::setrlimit(RLIMIT_NOFILE, &before);
  for (const int each : taken) ::close(each);
  CHECK(waiting.send(raw.hello()));
  const Message message = waiting.receive();  // it was accepted
  const auto& welcome = std::get<Welcome>(message);
  RawConnection data(welcome.processes.at(0).data_address, welcome.processes.at(0).data_port);
  data.send(raw.data_hello());
  waiting.send(Connected{});
  joined.get();
  waiting.send(Bye{});
  CHECK(waiting.is_closed_by_other());
  first.leave();
}
#endif
