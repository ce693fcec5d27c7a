#include <coxswain/runtime/kept/keeper_connection.hpp>

#include <coxswain/device_handle/thread/blocked_signals.hpp>
#include <coxswain/runtime/kept/kept_error.hpp>
#include <coxswain/runtime/socket/local_socket.hpp>
#include <coxswain/runtime/socket/peer_process.hpp>

#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

namespace cox {
namespace {

using Kind = KeeperMessage::Kind;

[[noreturn]] void refuse(const KeeperMessage& message, std::source_location site) {
  const auto last = static_cast<std::uint64_t>(KeptError::Kind::Order);
  const auto kind = message.number <= last ? static_cast<KeptError::Kind>(message.number) : KeptError::Kind::Supervisor;
  throw KeptError(kind, message.text, site);
}

KeeperMessage request_of(Kind kind, const std::string& set, const std::string& device = {},
                         const std::string& name = {}) {
  KeeperMessage request;
  request.kind = kind;
  request.set = set;
  request.device = device;
  request.name = name;
  return request;
}

// Kills this process when the one at the other end of the socket has ended. `cox run` does that to the process that it
// has started itself, which need not be this one.
void end_with(int socket, std::source_location site) {
  const auto supervisor = detail::peer_process(socket);
  if (!supervisor) return;
  FileDescriptor watched(static_cast<int>(syscall(SYS_pidfd_open, supervisor->id, 0)));
  if (!watched.is_open()) {
    if (errno == ESRCH) throw KeptError(KeptError::Kind::Supervisor, "the supervisor has ended", site);
    if (errno == EMFILE || errno == ENFILE)
      throw KeptError(KeptError::Kind::Descriptors, "no file descriptor is left to watch the supervisor", site);
    return;
  }
  try {
    const detail::BlockedSignals blocked;
    std::thread([watched = std::move(watched), supervisor = supervisor->id] {
      pollfd ended{.fd = watched.get(), .events = POLLIN, .revents = 0};
      while (poll(&ended, 1, -1) < 0 && errno == EINTR) {
      }
      const std::string text = "coxswain: process " + std::to_string(supervisor) +
                               ", which held the kept memory of this process, has ended; this process is killed\n";
      static_cast<void>(!write(STDERR_FILENO, text.data(), text.size()));
      kill(getpid(), SIGKILL);
    }).detach();
  } catch (const std::system_error&) {
    throw KeptError(KeptError::Kind::Supervisor, "no thread can be started to watch the supervisor", site,
                    std::current_exception());
  }
}

[[noreturn]] void fail_unexpected(std::source_location site) {
  throw KeptError(KeptError::Kind::Supervisor, "the supervisor has given an answer that belongs to no request", site);
}

}  // namespace

void KeeperConnection::Turn::lock() {
  std::unique_lock lock(mutex_);
  free_.wait(lock, [this] { return !taken_; });
  taken_ = true;
}

bool KeeperConnection::Turn::try_lock_for(std::chrono::milliseconds longest) {
  std::unique_lock lock(mutex_);
  if (!free_.wait_for(lock, longest, [this] { return !taken_; })) return false;
  return taken_ = true;
}

void KeeperConnection::Turn::unlock() {
  {
    const std::lock_guard lock(mutex_);
    taken_ = false;
  }
  free_.notify_one();
}

KeeperConnection::KeeperConnection(const std::string& path, std::source_location site) try
    : socket_(connect_local(path)), process_(getpid()) {
  constexpr int room = 4 << 20;  // several messages with values as large as they may be, where the system allows that
  static_cast<void>(setsockopt(socket_.get(), SOL_SOCKET, SO_SNDBUF, &room, sizeof(room)));
} catch (const std::system_error& error) {
  throw KeptError(KeptError::Kind::Supervisor, std::string("no supervisor answers at ") + error.what(), site);
}

std::shared_ptr<KeeperConnection> KeeperConnection::of_process(std::source_location site) {
  static const std::shared_ptr<KeeperConnection> connection = [site] {
    const char* const path = std::getenv(variable);
    if (path == nullptr || *path == '\0') return std::shared_ptr<KeeperConnection>();
    auto made = std::make_shared<KeeperConnection>(path, site);
    end_with(made->socket_.get(), site);
    return made;
  }();
  if (connection != nullptr) connection->require_same_process(site);
  return connection;
}

void KeeperConnection::require_same_process(std::source_location site) const {
  if (getpid() != process_)
    throw KeptError(KeptError::Kind::Forked,
                    "kept memory belongs to the process that has opened it; this one is a fork of it", site);
}

KeeperMessage KeeperConnection::answer(std::source_location site) {
  std::optional<KeeperMessage> message;
  try {
    message = receive_message(socket_.get(), site);
    if (!message) throw KeptError(KeptError::Kind::Supervisor, "the supervisor has ended the connection", site);
  } catch (const KeptError& error) {
    if (error.kind() != KeptError::Kind::Descriptors) socket_.reset();
    throw;
  } catch (...) {
    socket_.reset();
    throw;
  }
  if (message->kind == Kind::Refused) refuse(*message, site);
  return std::move(*message);
}

KeeperMessage KeeperConnection::send_request(const KeeperMessage& request, std::source_location site) {
  require_same_process(site);
  send_message(socket_.get(), request, KeeperWait::Yes, site);
  return answer(site);
}

HeldSet KeeperConnection::open(const std::string& set, const std::string& schema, const std::string& mode,
                               std::source_location site) {
  KeeperMessage request = request_of(Kind::Open, set, {}, mode);
  request.text = schema;
  const std::lock_guard lock(turn_);
  HeldSet held;
  for (KeeperMessage next = send_request(request, site);; next = answer(site)) {
    switch (next.kind) {
      case Kind::Held: held.memory[{next.device, next.name}] = {next.bytes, next.number}; break;
      case Kind::Values: held.values.push_back({next.device, next.number, std::move(next.payload)}); break;
      case Kind::Lost: held.lost.insert(next.device); break;
      case Kind::Opened: held.generation = next.number; return held;
      default: fail_unexpected(site);
    }
  }
}

void KeeperConnection::close(const std::string& set) noexcept {
  try {
    const KeeperMessage message = request_of(Kind::Close, set);
    require_same_process({});
    const std::unique_lock lock(turn_, keeper_shortly);
    if (lock.owns_lock()) send_message(socket_.get(), message, KeeperWait::Shortly, {});
  } catch (...) {  // the set stays open until the process ends
  }
}

void KeeperConnection::keep(const std::string& set, const std::string& device, const std::string& name,
                            std::uint64_t bytes, std::uint64_t epoch, const KeptPieceSource& pieces,
                            std::source_location site) {
  // Held for all packets: after a lack of descriptors the supervisor drops every incomplete allocation of this process.
  const std::lock_guard lock(turn_);
  for (bool is_last = false; !is_last;) {
    KeptPieces next = pieces();
    is_last = next.are_last;
    KeeperMessage request = request_of(Kind::Keep, set, device, name);
    request.bytes = bytes;
    request.text = std::to_string(epoch);
    request.number = is_last ? 1 : 0;
    request.sizes = std::move(next.sizes);
    request.descriptors = std::move(next.descriptors);
    if (send_request(request, site).kind != Kind::Done) fail_unexpected(site);
  }
}

std::uint64_t KeeperConnection::found(const std::string& set, std::uint64_t epoch, std::source_location site) {
  KeeperMessage request = request_of(Kind::Found, set);
  request.number = epoch;
  const std::lock_guard lock(turn_);
  const KeeperMessage done = send_request(request, site);
  if (done.kind != Kind::Done) fail_unexpected(site);
  return done.bytes;
}

KeptPieces KeeperConnection::take(const std::string& set, const std::string& device, const std::string& name,
                                  std::size_t first, std::source_location site) {
  KeeperMessage request = request_of(Kind::Take, set, device, name);
  request.number = first;
  const std::lock_guard lock(turn_);
  KeeperMessage pieces = send_request(request, site);
  if (pieces.kind != Kind::Pieces || pieces.device != device || pieces.name != name || pieces.sizes.empty())
    fail_unexpected(site);
  return {std::move(pieces.descriptors), std::move(pieces.sizes), pieces.number == 1};
}

void KeeperConnection::forget(const std::string& set, const std::string& device, const std::string& name,
                              std::source_location site) {
  const KeeperMessage request = request_of(Kind::Forget, set, device, name);
  const std::lock_guard lock(turn_);
  if (send_request(request, site).kind != Kind::Done) fail_unexpected(site);
}

void KeeperConnection::lose(const std::string& set, const std::string& device, std::source_location site) {
  const KeeperMessage request = request_of(Kind::Lost, set, device);
  const std::lock_guard lock(turn_);
  if (send_request(request, site).kind != Kind::Done) fail_unexpected(site);
}

void KeeperConnection::send_values(const std::string& set, const std::string& device, std::uint64_t epoch,
                                   std::span<const std::byte> values, std::source_location site) {
  KeeperMessage message = request_of(Kind::Values, set, device);
  message.number = epoch;
  message.payload.assign(values.begin(), values.end());
  require_same_process(site);
  const std::unique_lock lock(turn_, keeper_shortly);
  if (!lock.owns_lock())
    throw KeptError(KeptError::Kind::Supervisor,
                    "the supervisor has not answered an earlier request of this process: it does not run", site);
  send_message(socket_.get(), message, KeeperWait::Shortly, site);
}

}  // namespace cox
