#include <coxswain/runtime/kept/keeper_message.hpp>
#include <coxswain/runtime/kept/kept_error.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <functional>
#include <random>
#include <source_location>
#include <span>
#include <string>
#include <utility>
#include <vector>

using namespace cox;

namespace {

constexpr std::source_location here = std::source_location::current();

struct Sockets {
  Sockets() {
    int ends[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    one.reset(ends[0]);
    other.reset(ends[1]);
  }
  FileDescriptor one;
  FileDescriptor other;
};

KeeperMessage full_message() {
  KeeperMessage message;
  message.kind = KeeperMessage::Kind::Keep;
  message.set = "model";
  message.device = std::string(KeeperMessage::max_name, 'd');
  message.name = "weights";
  message.text = std::string(KeeperMessage::max_text, 't');
  message.number = 0x0123456789abcdef;
  message.bytes = 42;
  message.sizes = {1, 2, std::uint64_t{1} << 40U};
  message.payload.resize(KeeperMessage::max_payload, std::byte{7});
  return message;
}

FileDescriptor some_descriptor() { return FileDescriptor(open("/dev/null", O_RDONLY | O_CLOEXEC)); }

std::size_t open_descriptors() {
  std::size_t count = 0;
  for (int i = 0; i < 1024; ++i) count += fcntl(i, F_GETFD) >= 0 ? 1U : 0U;
  return count;
}

KeptError::Kind kind_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const KeptError& error) {
    return error.kind();
  }
  FAIL("no KeptError");
  return KeptError::Kind::Order;
}

}  // namespace

TEST_CASE("A message about kept memory is decoded as it was encoded") {
  const KeeperMessage sent = full_message();
  const auto got = KeeperMessage::decode(sent.encode());
  REQUIRE(got);
  CHECK(got->kind == sent.kind);
  CHECK((got->set == sent.set && got->device == sent.device && got->name == sent.name && got->text == sent.text));
  CHECK((got->number == sent.number && got->bytes == sent.bytes && got->sizes == sent.sizes));
  CHECK(got->payload == sent.payload);
}

TEST_CASE("No part of a message, and no message with a longer field or another version, is decoded") {
  const auto packet = full_message().encode();
  for (std::size_t size = 0; size < packet.size(); size = size < 700 ? size + 1 : size + 997)
    CHECK_FALSE(KeeperMessage::decode(std::span(packet).first(size)));
  auto longer = packet;
  longer.push_back(std::byte{0});
  CHECK_FALSE(KeeperMessage::decode(longer));
  for (const unsigned version : {KeeperMessage::version - 1U, KeeperMessage::version + 1U}) {
    auto other_version = packet;
    other_version[4] = static_cast<std::byte>(version);
    CHECK_FALSE(KeeperMessage::decode(other_version));
  }
  auto message = full_message();
  message.set.assign(KeeperMessage::max_name + 1, 's');
  CHECK_FALSE(KeeperMessage::decode(message.encode()));
}

TEST_CASE("Random and damaged packets are refused, or are messages within the limits") {
  std::mt19937 random(7);  // NOLINT(cert-msc51-cpp): a fixed seed
  const auto packet = [] {
    KeeperMessage message = full_message();
    message.payload.resize(20);
    message.text.resize(20);
    message.device.resize(20);
    return message.encode();
  }();
  std::size_t decoded = 0;
  for (int round = 0; round < 20000; ++round) {
    auto damaged = packet;
    for (unsigned changes = random() % 4; changes > 0; --changes)
      damaged[random() % damaged.size()] = static_cast<std::byte>(random());
    damaged.resize(damaged.size() - (random() % 8 == 0 ? random() % damaged.size() : 0));
    const auto message = KeeperMessage::decode(damaged);
    if (!message) continue;
    ++decoded;
    CHECK(message->set.size() <= KeeperMessage::max_name);
    CHECK(message->sizes.size() <= KeeperMessage::max_pieces);
  }
  CHECK(decoded > 1000);
}

TEST_CASE("Descriptors arrive with their message, close-on-exec, as many as a packet holds") {
  const Sockets sockets;
  const std::size_t before = open_descriptors();
  {
    KeeperMessage message;
    message.kind = KeeperMessage::Kind::Keep;
    for (std::size_t i = 0; i < KeeperMessage::max_pieces; ++i) {
      message.sizes.push_back(i);
      message.descriptors.push_back(some_descriptor());
    }
    send_message(sockets.one.get(), message, KeeperWait::Yes, here);
    const auto got = receive_message(sockets.other.get(), here);
    REQUIRE(got);
    REQUIRE(got->descriptors.size() == KeeperMessage::max_pieces);
    for (const FileDescriptor& each : got->descriptors) CHECK((fcntl(each.get(), F_GETFD) & FD_CLOEXEC) != 0);
    message.sizes.push_back(0);
    message.descriptors.push_back(some_descriptor());
    CHECK(kind_of([&] { send_message(sockets.one.get(), message, KeeperWait::Yes, here); }) == KeptError::Kind::Limit);
  }
  CHECK(open_descriptors() == before);
}

TEST_CASE("A message whose descriptors do not fit is refused, and none of them stays open") {
  const Sockets sockets;
  KeeperMessage message;
  message.kind = KeeperMessage::Kind::Keep;
  for (std::uint64_t i = 0; i < 8; ++i) {
    message.sizes.push_back(i);
    message.descriptors.push_back(some_descriptor());
  }
  send_message(sockets.one.get(), message, KeeperWait::Yes, here);
  const std::size_t before = open_descriptors();
  rlimit limit{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  int highest = 0;
  for (int i = 0; i < 1024; ++i)
    if (fcntl(i, F_GETFD) >= 0) highest = i;
  const rlimit less{.rlim_cur = static_cast<rlim_t>(highest) + 4, .rlim_max = limit.rlim_max};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &less) == 0);
  std::vector<FileDescriptor> gaps;  // so that fewer than 8 are left whatever numbers are free
  for (FileDescriptor next = some_descriptor(); next.is_open(); next = some_descriptor())
    gaps.push_back(std::move(next));
  gaps.resize(gaps.size() - std::min<std::size_t>(gaps.size(), 2));
  const auto kind = kind_of([&] { static_cast<void>(receive_message(sockets.other.get(), here)); });
  REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
  gaps.clear();
  CHECK(kind == KeptError::Kind::Descriptors);
  CHECK(open_descriptors() == before);
}

TEST_CASE("Too many descriptors in flight are an error of the sender, and none of them stays open") {
  // Another user's process: for root the kernel does not count them.
  const pid_t child = fork();
  if (child == 0) {
    if (geteuid() == 0 && setuid(65534) != 0) _exit(10);
    const Sockets sockets;
    const std::size_t before = open_descriptors();
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    const rlimit less{.rlim_cur = 60, .rlim_max = limit.rlim_max};
    setrlimit(RLIMIT_NOFILE, &less);
    for (int sent = 0; sent < 100; ++sent) {
      KeeperMessage message;
      for (std::uint64_t i = 0; i < 20; ++i) {
        message.sizes.push_back(i);
        message.descriptors.push_back(some_descriptor());
      }
      try {
        send_message(sockets.one.get(), message, KeeperWait::Shortly, here);
      } catch (const KeptError& error) {
        message.descriptors.clear();
        if (error.kind() != KeptError::Kind::Descriptors) _exit(11);
        _exit(open_descriptors() == before && sent >= 3 ? 0 : 12);
      }
    }
    _exit(13);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

TEST_CASE("What is not a message is refused, and a closed end is reported") {
  Sockets sockets;
  const std::array<char, 5> other{"text"};
  REQUIRE(send(sockets.one.get(), other.data(), other.size(), 0) > 0);
  CHECK(kind_of([&] { static_cast<void>(receive_message(sockets.other.get(), here)); }) == KeptError::Kind::Supervisor);
  sockets.one.reset();
  CHECK_FALSE(receive_message(sockets.other.get(), here));
  KeeperMessage message;
  CHECK(kind_of([&] { send_message(sockets.other.get(), message, KeeperWait::Yes, here); }) ==
        KeptError::Kind::Supervisor);
}

TEST_CASE("A sender that does not wait gets an error if its messages are not received") {
  const Sockets sockets;
  KeeperMessage message;
  message.payload.resize(KeeperMessage::max_payload);
  CHECK(kind_of([&] {
          for (int i = 0; i < 10000; ++i) send_message(sockets.one.get(), message, KeeperWait::Shortly, here);
        }) == KeptError::Kind::Supervisor);
}
