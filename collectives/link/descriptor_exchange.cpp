#include <coxswain/collectives/link/descriptor_exchange.hpp>

#include <coxswain/runtime/base/fnv1a.hpp>
#include <coxswain/runtime/socket/descriptor_packet.hpp>
#include <coxswain/runtime/socket/peer_process.hpp>

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

namespace cox::detail::world {
namespace {

// Connections that have not sent their request: more than as many as processes of one host use at a time.
constexpr std::size_t most_unanswered = 64;

[[noreturn]] void throw_error(int error, const char* what) {
  throw std::system_error(error, std::generic_category(), what);
}

FileDescriptor open_socket() {
  FileDescriptor made(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!made.is_open()) throw_error(errno, "no socket for the exchange of file descriptors");
  return made;
}

struct Name {
  sockaddr_un address{};
  socklen_t size = 0;

  // The first byte of an abstract name is 0.
  explicit Name(const WorldToken& token) {
    const std::string text = "coxswain-" + to_hexadecimal(token);
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, text.data(), text.size());
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  }
  [[nodiscard]] const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&address); }
};

bool has_own_user(int link) noexcept {
  const auto peer = peer_process(link);
  return peer && peer->has_own_user;
}

bool would_block(int error) noexcept { return error == EAGAIN || error == EWOULDBLOCK; }

}  // namespace

std::uint64_t descriptor_neighbourhood() noexcept try {
  std::string text;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), text);
  struct stat space{};
  if (text.empty() || stat("/proc/self/ns/net", &space) != 0) return 0;
  text += '/' + std::to_string(space.st_dev) + '/' + std::to_string(space.st_ino) + '/' + std::to_string(geteuid());
  return fnv1a(text);
} catch (...) {  // no memory
  return 0;
}

DescriptorExchange::DescriptorExchange()
    : address_{.name = random_token(), .secret = random_token()}, listener_(open_socket()) {
  const Name name(address_.name);
  if (::bind(listener_.get(), name.get(), name.size) != 0 || ::listen(listener_.get(), SOMAXCONN) != 0)
    throw_error(errno, "cannot listen for the exchange of file descriptors");
}

void DescriptorExchange::begin(std::span<const DescriptorAddress> others, std::vector<FileDescriptor> own) {
  own_ = std::move(own);
  received_.resize(others.size());
  others_.reserve(others.size());
  for (const DescriptorAddress& each : others)
    request(others_.emplace_back(Other{.address = each, .link = open_socket()}));
}

// The other process need not have accepted the connection. If too many others wait for that, advance() tries again.
void DescriptorExchange::request(Other& other) const {
  const Name name(other.address.name);
  if (::connect(other.link.get(), name.get(), name.size) != 0) {
    if (would_block(errno) || errno == EINTR) return;
    throw_error(errno, "another process cannot be reached for the exchange of file descriptors");
  }
  if (!has_own_user(other.link.get())) throw std::runtime_error("another user has the address of an exchange");
  other.has_request = true;
  const Request request{.secret = other.address.secret, .name = address_.name};
  if (const int error = send_packet(other.link.get(), std::as_bytes(std::span(&request, 1)), {}, MSG_DONTWAIT))
    throw_error(error, "file descriptors cannot be requested");
}

bool DescriptorExchange::advance() {
  if (!listener_.is_open()) return true;
  accept();
  std::erase_if(unidentified_, [this](const FileDescriptor& link) { return answer(link.get()); });
  bool all = true;
  for (std::size_t i = 0; i < others_.size(); ++i) {
    if (!others_[i].has_request) request(others_[i]);
    if (others_[i].has_request && !others_[i].has_answered) receive(others_[i], received_[i]);
    all = all && others_[i].has_answered && others_[i].was_answered;
  }
  if (all) listener_.reset();
  return all;
}

void DescriptorExchange::accept() {
  for (std::size_t accepted = 0; accepted < most_unanswered && unidentified_.size() < most_unanswered; ++accepted) {
    FileDescriptor link(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (link.is_open()) {
      if (has_own_user(link.get())) unidentified_.push_back(std::move(link));
      continue;
    }
    if (would_block(errno)) return;
    if (errno != EINTR && errno != ECONNABORTED)
      throw_error(errno, "no connection for the exchange of file descriptors");
  }
}

// Returns whether the connection has served its purpose, or serves none.
bool DescriptorExchange::answer(int link) {
  DescriptorPacket packet;
  const int error = receive_packet(link, sizeof(Request), packet, MSG_DONTWAIT);
  if (would_block(error)) return false;
  if (error != 0 || packet.is_cut || packet.data.size() != sizeof(Request)) return true;
  Request request{};
  std::memcpy(&request, packet.data.data(), sizeof(request));
  if (!tokens_equal(request.secret, address_.secret)) return true;
  const auto other =
      std::ranges::find_if(others_, [&](const Other& each) { return tokens_equal(each.address.name, request.name); });
  if (other == others_.end() || other->was_answered) return true;
  constexpr std::byte only{1};
  if (const int refused = send_packet(link, {&only, 1}, own_, MSG_DONTWAIT))
    throw_error(refused, "file descriptors cannot be passed");
  other->was_answered = true;
  return true;
}

void DescriptorExchange::receive(Other& other, std::vector<FileDescriptor>& into) const {
  DescriptorPacket packet;
  const int error = receive_packet(other.link.get(), 1, packet, MSG_DONTWAIT);
  if (would_block(error)) return;
  if (error != 0 && error != ECONNRESET) throw_error(error, "file descriptors cannot be received");
  if (packet.data.empty()) throw std::runtime_error("another process has ended the exchange of file descriptors");
  if (packet.lacks_descriptors) throw std::runtime_error("no file descriptors are left for those of another process");
  into = std::move(packet.descriptors);
  other.link.reset();
  other.has_answered = true;
}

std::vector<std::vector<FileDescriptor>> DescriptorExchange::take() noexcept { return std::exchange(received_, {}); }

}  // namespace cox::detail::world
