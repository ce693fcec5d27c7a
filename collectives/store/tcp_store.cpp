#include <coxswain/collectives/store/tcp_store.hpp>

#include <coxswain/collectives/store/store_error.hpp>
#include <coxswain/collectives/store/store_message.hpp>
#include <coxswain/runtime/config/setting_value.hpp>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

namespace cox::detail {
namespace {

using MessageKind = StoreMessage::Kind;

// A reply that has begun to arrive may take this much longer than the deadline, so that the connection stays usable.
constexpr std::chrono::seconds rest_of_reply{2};

std::string list_of(const std::vector<std::uint16_t>& processes) {
  constexpr std::size_t most = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(processes.size(), most); ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(processes[i]);
  if (processes.size() > most) text += " and " + std::to_string(processes.size() - most) + " more";
  return text;
}

StoreMessage request_of(MessageKind kind, const std::string& key) {
  StoreMessage request;
  request.kind = kind;
  request.key = key;
  return request;
}

}  // namespace

TcpStore::TcpStore(const TcpStoreOptions& options, Deadline deadline)
    : Store(store_prefix(options.run, options.restart)), options_(options) {
  if (options_.process == 0) {
    server_ = std::make_unique<TcpStoreServer>(options_, deadline);
    options_.port = server_->port();
  }
  connect(deadline);
}

TcpStore::~TcpStore() = default;

void TcpStore::connect(Deadline deadline) {
  constexpr std::chrono::milliseconds pause{50};
  std::string earlier;  // which store was there instead
  for (;;) {
    try {
      socket_ = std::make_unique<DeadlineSocket>(options_.host, options_.port, deadline);
      StoreMessage hello;
      hello.kind = MessageKind::Hello;
      hello.process = options_.process;
      hello.restart = options_.restart;
      hello.token = options_.token;
      hello.text = options_.run;
      const StoreMessage reply = call(std::move(hello), deadline);
      if (reply.kind == MessageKind::Done) return;
      earlier = reply.text;
    } catch (const StoreError& error) {
      // An earlier store that ends while a process connects: there will be another one.
      const bool is_lost = error.kind() == StoreError::Kind::Unreachable || error.kind() == StoreError::Kind::Timeout;
      if (!is_lost || earlier.empty()) throw;
    }
    if (std::chrono::steady_clock::now() + pause >= deadline)
      throw StoreError(StoreError::Kind::Timeout, "the store of this restart was not at " +
                                                      host_and_port(options_.host, options_.port) +
                                                      " before the deadline; there was another one: " + earlier);
    std::this_thread::sleep_for(pause);
  }
}

StoreMessage TcpStore::call(StoreMessage request, Deadline deadline) {
  request.number = ++last_number_;
  socket_->send(request.frame(), deadline);
  for (;;) {
    if (!socket_->wait_readable(deadline))
      throw StoreError(StoreError::Kind::Timeout,
                       request.key.empty()
                           ? "the store at " + socket_->peer() + " has not replied before the deadline"
                           : "key " + in_quotes(request.key) + ": the store at " + socket_->peer() +
                                 (request.kind == MessageKind::Get ? " had no value for it before the deadline"
                                                                   : " has not replied before the deadline"));
    StoreMessage reply = receive(deadline);
    if (reply.number != request.number) continue;  // of a call whose deadline has passed
    if (reply.kind != MessageKind::Failed) return reply;
    const bool is_known = reply.amount >= 0 && reply.amount <= static_cast<std::int64_t>(StoreError::Kind::Unsupported);
    throw StoreError(is_known ? static_cast<StoreError::Kind>(reply.amount) : StoreError::Kind::Protocol,
                     "the store at " + socket_->peer() + " refused a call: " + reply.text);
  }
}

StoreMessage TcpStore::receive(Deadline deadline) {
  const auto until = std::max(deadline, std::chrono::steady_clock::now() + rest_of_reply);
  StoreMessage::Length length{};
  socket_->receive(length, until);
  const std::size_t size = StoreMessage::length_of(length);
  std::optional<StoreMessage> reply;
  if (size <= StoreMessage::max_message) {
    std::vector<std::byte> bytes(size);
    socket_->receive(bytes, until);
    reply = StoreMessage::decode(bytes);
  }
  if (reply && reply->kind >= MessageKind::Done) return *std::move(reply);
  socket_->close();
  throw StoreError(StoreError::Kind::Protocol,
                   "what " + socket_->peer() + " sent is no reply of a store of this version of the library");
}

void TcpStore::do_set(const std::string& key, std::span<const std::byte> value, Deadline deadline) {
  StoreMessage request = request_of(MessageKind::Set, key);
  request.value.assign(value.begin(), value.end());
  static_cast<void>(call(std::move(request), deadline));
}

std::vector<std::byte> TcpStore::do_get(const std::string& key, Deadline deadline) {
  return call(request_of(MessageKind::Get, key), deadline).value;
}

std::int64_t TcpStore::do_add(const std::string& key, std::int64_t amount, Deadline deadline) {
  StoreMessage request = request_of(MessageKind::Add, key);
  request.amount = amount;
  return call(std::move(request), deadline).amount;
}

std::vector<std::byte> TcpStore::do_compare_set(const std::string& key, std::span<const std::byte> expected,
                                                std::span<const std::byte> desired, Deadline deadline) {
  StoreMessage request = request_of(MessageKind::CompareSet, key);
  request.expected.assign(expected.begin(), expected.end());
  request.value.assign(desired.begin(), desired.end());
  return call(std::move(request), deadline).value;
}

void TcpStore::do_close(Deadline deadline) {
  static_cast<void>(call(request_of(MessageKind::Bye, {}), deadline));
  socket_->close();
  if (server_ == nullptr) return;
  const std::vector<std::uint16_t> missing = server_->wait_until_closed(deadline);
  server_.reset();
  if (missing.empty()) return;
  throw StoreError(StoreError::Kind::Timeout, "these processes have not closed the store at " + socket_->peer() +
                                                  " before the deadline: " + list_of(missing));
}

}  // namespace cox::detail
