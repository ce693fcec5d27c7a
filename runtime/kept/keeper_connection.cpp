#include <coxswain/runtime/kept/keeper_connection.hpp>

#include <coxswain/runtime/kept/kept_error.hpp>

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>
#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string_view>
#include <system_error>

namespace cox {
namespace {

using Kind = KeeperMessage::Kind;

// The socket that the variable names; -1 if it names none.
int socket_of_environment() {
  const char* const text = std::getenv(KeeperConnection::variable);
  if (text == nullptr) return -1;
  const std::string_view number(text);
  int socket = -1;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), socket);
  if (error != std::errc() || end != number.data() + number.size() || socket < 0) return -1;
  int type = 0;
  socklen_t size = sizeof(type);
  if (getsockopt(socket, SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_SEQPACKET) return -1;
  return socket;
}

[[noreturn]] void refuse(const KeeperMessage& message, std::source_location site) {
  const auto last = static_cast<std::uint64_t>(KeptError::Kind::Order);
  const auto kind = message.number <= last ? static_cast<KeptError::Kind>(message.number) : KeptError::Kind::Supervisor;
  throw KeptError(kind, message.text, site);
}

[[noreturn]] void fail_unexpected(std::source_location site) {
  throw KeptError(KeptError::Kind::Supervisor, "the supervisor has given an answer that belongs to no request", site);
}

}  // namespace

KeeperConnection::KeeperConnection(int socket) noexcept : socket_(socket), process_(getpid()) {
  static_cast<void>(fcntl(socket, F_SETFD, FD_CLOEXEC));
}

std::shared_ptr<KeeperConnection> KeeperConnection::of_process(std::source_location site) {
  static const std::shared_ptr<KeeperConnection> connection = [] {
    const int socket = socket_of_environment();
    return socket < 0 ? nullptr : std::make_shared<KeeperConnection>(socket);
  }();
  if (connection != nullptr) connection->require_same_process(site);
  return connection;
}

void KeeperConnection::require_same_process(std::source_location site) const {
  if (getpid() != process_)
    throw KeptError(KeptError::Kind::Forked,
                    "kept memory belongs to the process that has opened it; this one is a fork of it", site);
}

KeeperMessage KeeperConnection::answer(std::source_location site) const {
  auto message = receive_message(socket_.get(), site);
  if (!message) throw KeptError(KeptError::Kind::Supervisor, "the supervisor has ended", site);
  if (message->kind == Kind::Refused) refuse(*message, site);
  return std::move(*message);
}

KeeperMessage KeeperConnection::ask(const KeeperMessage& request, std::source_location site) {
  require_same_process(site);
  send_message(socket_.get(), request, KeeperWait::Yes, site);
  return answer(site);
}

HeldSet KeeperConnection::open(const std::string& set, const std::string& schema, const std::string& mode,
                               std::source_location site) {
  KeeperMessage request;
  request.kind = Kind::Open;
  request.set = set;
  request.text = schema;
  request.name = mode;
  const std::lock_guard lock(mutex_);
  HeldSet held;
  for (KeeperMessage next = ask(request, site);; next = answer(site)) {
    switch (next.kind) {
      case Kind::Held: held.memory[{next.device, next.name}] = next.bytes; break;
      case Kind::Values: held.values.push_back({next.device, next.number, std::move(next.payload)}); break;
      case Kind::Opened: held.generation = next.number; return held;
      default: fail_unexpected(site);
    }
  }
}

void KeeperConnection::close(const std::string& set) noexcept {
  try {
    KeeperMessage message;
    message.kind = Kind::Close;
    message.set = set;
    require_same_process({});
    const std::lock_guard lock(mutex_);
    send_message(socket_.get(), message, KeeperWait::No, {});
  } catch (...) {  // the set stays open until the process ends
  }
}

void KeeperConnection::keep(const std::string& set, const std::string& device, const std::string& name,
                            std::uint64_t bytes, KeptPieces pieces, std::source_location site) {
  const std::lock_guard lock(mutex_);
  for (std::size_t first = 0; first < pieces.sizes.size(); first += KeeperMessage::max_pieces) {
    const std::size_t count = std::min(KeeperMessage::max_pieces, pieces.sizes.size() - first);
    const auto at = [&](auto& all) { return all.begin() + static_cast<std::ptrdiff_t>(first); };
    KeeperMessage request;
    request.kind = Kind::Keep;
    request.set = set;
    request.device = device;
    request.name = name;
    request.bytes = bytes;
    request.number = first + count == pieces.sizes.size() ? 1 : 0;
    request.sizes.assign(at(pieces.sizes), at(pieces.sizes) + static_cast<std::ptrdiff_t>(count));
    std::move(at(pieces.descriptors), at(pieces.descriptors) + static_cast<std::ptrdiff_t>(count),
              std::back_inserter(request.descriptors));
    if (ask(request, site).kind != Kind::Done) fail_unexpected(site);
  }
}

std::uint64_t KeeperConnection::found(const std::string& set, std::uint64_t epoch, std::source_location site) {
  KeeperMessage request;
  request.kind = Kind::Found;
  request.set = set;
  request.number = epoch;
  const std::lock_guard lock(mutex_);
  const KeeperMessage done = ask(request, site);
  if (done.kind != Kind::Done) fail_unexpected(site);
  return done.bytes;
}

KeptPieces KeeperConnection::take(const std::string& set, const std::string& device, const std::string& name,
                                  std::source_location site) {
  KeeperMessage request;
  request.kind = Kind::Take;
  request.set = set;
  request.device = device;
  request.name = name;
  const std::lock_guard lock(mutex_);
  KeptPieces pieces;
  for (KeeperMessage next = ask(request, site);; next = answer(site)) {
    if (next.kind != Kind::Pieces) fail_unexpected(site);
    std::ranges::copy(next.sizes, std::back_inserter(pieces.sizes));
    std::ranges::move(next.descriptors, std::back_inserter(pieces.descriptors));
    if (next.number == 1) return pieces;
  }
}

void KeeperConnection::forget(const std::string& set, const std::string& device, const std::string& name,
                              std::source_location site) {
  KeeperMessage request;
  request.kind = Kind::Forget;
  request.set = set;
  request.device = device;
  request.name = name;
  const std::lock_guard lock(mutex_);
  if (ask(request, site).kind != Kind::Done) fail_unexpected(site);
}

void KeeperConnection::send_values(const std::string& set, const std::string& device, std::uint64_t epoch,
                                   std::span<const std::byte> values, std::source_location site) {
  KeeperMessage message;
  message.kind = Kind::Values;
  message.set = set;
  message.device = device;
  message.number = epoch;
  message.payload.assign(values.begin(), values.end());
  require_same_process(site);
  const std::lock_guard lock(mutex_);
  send_message(socket_.get(), message, KeeperWait::No, site);
}

}  // namespace cox
