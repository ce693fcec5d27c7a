#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/open_descriptors.hpp>

#include <coxswain/collectives/link/descriptor_exchange.hpp>
#include <coxswain/runtime/socket/descriptor_packet.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <system_error>
#include <vector>

using namespace cox;
using namespace cox::detail::world;
using namespace std::chrono_literals;

namespace {

// Files of memory that contain `text` and a number each.
std::vector<FileDescriptor> files(const std::string& text, std::size_t count) {
  std::vector<FileDescriptor> all;
  for (std::size_t i = 0; i < count; ++i) {
    const FileDescriptor& file = all.emplace_back(::memfd_create("test", MFD_CLOEXEC));
    const std::string contents = text + std::to_string(i);
    REQUIRE(::write(file.get(), contents.data(), contents.size()) == static_cast<ssize_t>(contents.size()));
  }
  return all;
}

std::string contents_of(const FileDescriptor& file) {
  std::array<char, 100> text{};
  const ssize_t size = ::pread(file.get(), text.data(), text.size(), 0);
  return size < 0 ? "" : std::string(text.data(), static_cast<std::size_t>(size));
}

// SharingProcesses, each of which gives as many files as its number plus one.
struct SharingProcesses {
  explicit SharingProcesses(std::size_t count) {
    while (all.size() < count) all.push_back(std::make_unique<DescriptorExchange>());
  }

  [[nodiscard]] std::vector<DescriptorAddress> others(std::size_t process) const {
    std::vector<DescriptorAddress> addresses;
    for (std::size_t each = 0; each < all.size(); ++each)
      if (each != process) addresses.push_back(all[each]->address());
    return addresses;
  }
  void begin(std::size_t process) {
    all[process]->begin(others(process), files("of " + std::to_string(process) + ": ", process + 1));
  }
  // Whether they are done in time.
  [[nodiscard]] bool advance() {
    const auto deadline = std::chrono::steady_clock::now() + 10s;
    for (;;) {
      bool done = true;
      for (const auto& each : all) done = each->advance() && done;
      if (done || std::chrono::steady_clock::now() > deadline) return done;
    }
  }

  std::vector<std::unique_ptr<DescriptorExchange>> all;
};

FileDescriptor connect_to(const DescriptorAddress& address) {
  FileDescriptor link(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  const std::string text = "coxswain-" + detail::to_hexadecimal(address.name);
  std::memcpy(name.sun_path + 1, text.data(), text.size());
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  REQUIRE(::connect(link.get(), reinterpret_cast<const sockaddr*>(&name), size) == 0);
  return link;
}

// Whether the other end closes the connection without an answer.
bool gets_nothing(const FileDescriptor& link) {
  DescriptorPacket packet;
  const int error = receive_packet(link.get(), 100, packet, MSG_DONTWAIT);
  return error == ECONNRESET || (error == 0 && packet.data.empty() && packet.descriptors.empty());
}

}  // namespace

TEST_CASE("Each process gets the descriptors of all others, in the order in which it names them", "[world]") {
  const std::size_t before = test::open_descriptors();
  {
    SharingProcesses processes(3);
    for (const std::size_t each : {2U, 0U, 1U}) processes.begin(each);
    REQUIRE(processes.advance());
    for (std::size_t process = 0; process < 3; ++process) {
      const auto received = processes.all[process]->take();
      REQUIRE(received.size() == 2);
      std::size_t place = 0;
      for (std::size_t from = 0; from < 3; ++from) {
        if (from == process) continue;
        REQUIRE(received[place].size() == from + 1);
        for (std::size_t i = 0; i <= from; ++i) {
          CHECK(contents_of(received[place][i]) == "of " + std::to_string(from) + ": " + std::to_string(i));
          CHECK((::fcntl(received[place][i].get(), F_GETFD) & FD_CLOEXEC) != 0);
        }
        ++place;
      }
    }
  }
  CHECK(test::open_descriptors() == before);
}

TEST_CASE("An exchange is not done before the other processes have what they need", "[world]") {
  SharingProcesses processes(2);
  processes.begin(0);
  for (int i = 0; i < 100; ++i) REQUIRE_FALSE(processes.all[0]->advance());
  processes.begin(1);
  REQUIRE_FALSE(processes.all[1]->advance());  // process 0 answers in its next call
  REQUIRE(processes.advance());
}

TEST_CASE("Who does not have the secret of an exchange gets nothing, and disturbs nobody", "[world]") {
  SharingProcesses processes(2);
  processes.begin(0);
  const DescriptorAddress& address = processes.all[0]->address();
  struct Request {
    detail::WorldToken secret;
    detail::WorldToken name;
  };
  const auto send = [&](const FileDescriptor& link, const Request& request) {
    REQUIRE(send_packet(link.get(), std::as_bytes(std::span(&request, 1)), {}, 0) == 0);
  };
  const FileDescriptor wrong = connect_to(address);
  detail::WorldToken guess = address.secret;
  guess.back() ^= std::byte{1};
  send(wrong, {guess, processes.all[1]->address().name});
  const FileDescriptor unknown = connect_to(address);  // none of the processes that begin() has named
  send(unknown, {address.secret, detail::random_token()});
  const FileDescriptor large = connect_to(address);
  const std::vector<std::byte> much(1000);
  REQUIRE(send_packet(large.get(), much, {}, 0) == 0);
  const FileDescriptor small = connect_to(address);
  REQUIRE(send_packet(small.get(), std::span(much).first(1), {}, 0) == 0);
  const FileDescriptor silent = connect_to(address);
  const FileDescriptor with_files = connect_to(address);
  REQUIRE(send_packet(with_files.get(), std::span(much).first(32), files("unwanted", 3), 0) == 0);
  static_cast<void>(connect_to(address));  // and gone again
  REQUIRE_FALSE(processes.all[0]->advance());
  for (const FileDescriptor* link : {&wrong, &unknown, &large, &small, &with_files}) CHECK(gets_nothing(*link));
  processes.begin(1);
  REQUIRE(processes.advance());
  CHECK(contents_of(processes.all[1]->take().front().front()) == "of 0: 0");
}

TEST_CASE("A process whose exchange has ended is found at once", "[world]") {
  SharingProcesses processes(3);
  SECTION("before it was asked") {
    const std::vector<DescriptorAddress> others = processes.others(0);
    processes.all[2].reset();
    CHECK_THROWS_AS(processes.all[0]->begin(others, files("", 1)), std::system_error);
  }
  SECTION("after it was asked") {
    for (const std::size_t each : {0U, 1U, 2U}) processes.begin(each);
    processes.all[2].reset();
    for (const std::size_t each : {0U, 1U}) CHECK_THROWS(processes.all[each]->advance());
  }
}

TEST_CASE("Processes of one host and user have the same neighbourhood", "[world]") {
  CHECK(descriptor_neighbourhood() != 0);
  CHECK(descriptor_neighbourhood() == descriptor_neighbourhood());
}
