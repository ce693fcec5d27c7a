#include <coxswain/collectives/store/torch_store.hpp>

#include <coxswain/collectives/store/store_error.hpp>
#include <coxswain/runtime/config/setting_value.hpp>

#include <unistd.h>
#include <algorithm>
#include <chrono>
#include <type_traits>

namespace cox::detail {
namespace {

using StoreKind = StoreError::Kind;

constexpr std::uint32_t validation_number = 0x3C85F7CE;
constexpr std::uint8_t stop_waiting = 0;   // reply to Wait
constexpr std::uint8_t wait_canceled = 1;  // reply to CancelWait
constexpr std::uint8_t ready = 0;          // reply to Check
constexpr std::uint8_t not_ready = 1;

// For what must be received even though the deadline has passed, so that the connection stays usable.
constexpr std::chrono::seconds rest_of_torch_reply{2};

Store::Deadline at_least(Store::Deadline deadline, std::chrono::nanoseconds time) {
  return std::max(deadline, std::chrono::steady_clock::now() + time);
}

}  // namespace

enum class TorchStore::Call : std::uint8_t {
  Validate = 0,
  Set = 1,
  CompareSet = 2,
  Get = 3,
  Add = 4,
  Check = 5,
  Wait = 6,
  CancelWait = 12,
  Ping = 13
};

class TorchStore::Message {
 public:
  explicit Message(Call call) { number(static_cast<std::uint8_t>(call)); }

  template <class T>
  Message& number(T value) {
    static_assert(std::is_integral_v<T>);
    return raw(std::as_bytes(std::span(&value, 1)));
  }
  Message& bytes(std::span<const std::byte> content) {
    number(static_cast<std::uint64_t>(content.size()));
    return raw(content);
  }
  /// PyTorch's own clients put this letter before each key.
  Message& key(const std::string& name) {
    const std::string whole = "/" + name;
    return bytes(std::as_bytes(std::span(whole)));
  }
  [[nodiscard]] std::span<const std::byte> content() const noexcept { return content_; }

 private:
  Message& raw(std::span<const std::byte> content) {
    content_.insert(content_.end(), content.begin(), content.end());
    return *this;
  }

  std::vector<std::byte> content_;
};

TorchStore::TorchStore(const TorchStoreOptions& options, Deadline deadline)
    : Store(store_prefix(options.run, options.restart)), socket_(options.host, options.port, deadline) {
  greet(deadline);
}

void TorchStore::greet(Deadline deadline) {
  const auto nonce = static_cast<std::uint32_t>(getpid());
  send(Message(Call::Validate).number(validation_number), deadline);
  send(Message(Call::Ping).number(nonce), deadline);
  try {
    if (!socket_.wait_readable(deadline))
      throw StoreError(StoreKind::Timeout, socket_.peer() + " has not replied before the deadline");
    std::uint32_t reply = 0;
    socket_.receive(std::as_writable_bytes(std::span(&reply, 1)), at_least(deadline, rest_of_torch_reply));
    if (reply != nonce) fail_protocol("the reply to its ping is wrong");
  } catch (StoreError& error) {
    if (error.kind() == StoreKind::Protocol) throw;
    throw StoreError(error.kind(),
                     "is there a TCPStore of PyTorch 2.3 or newer at " + socket_.peer() + "? " + error.what());
  }
}

void TorchStore::send(const Message& message, Deadline deadline) { socket_.send(message.content(), deadline); }

void TorchStore::require_reply(const std::string& key, Deadline deadline) {
  if (socket_.wait_readable(deadline)) return;
  socket_.close();  // the reply may still arrive, and would be taken for that to another call
  throw StoreError(StoreKind::Timeout, "key " + in_quotes(key) + ": the TCPStore at " + socket_.peer() +
                                           " has not replied before the deadline; the connection is closed");
}

template <class T>
T TorchStore::receive(const std::string& key, Deadline deadline) {
  require_reply(key, deadline);
  T value{};
  socket_.receive(std::as_writable_bytes(std::span(&value, 1)), at_least(deadline, rest_of_torch_reply));
  return value;
}

std::vector<std::byte> TorchStore::receive_bytes(const std::string& key, Deadline deadline) {
  const auto size = receive<std::uint64_t>(key, deadline);
  if (size > max_value) fail_protocol("it sent a value of " + std::to_string(size) + " bytes");
  std::vector<std::byte> value(static_cast<std::size_t>(size));
  socket_.receive(value, at_least(deadline, rest_of_torch_reply));
  return value;
}

void TorchStore::fail_protocol(const std::string& what) {
  socket_.close();
  throw StoreError(StoreKind::Protocol,
                   "what is at " + socket_.peer() + " is no TCPStore of PyTorch 2.3 or newer: " + what);
}

void TorchStore::do_set(const std::string& key, std::span<const std::byte> value, Deadline deadline) {
  send(Message(Call::Set).key(key).bytes(value), deadline);
  // Set has no reply: a ping shows that it has been received.
  const auto nonce = static_cast<std::uint32_t>(getpid());
  send(Message(Call::Ping).number(nonce), deadline);
  if (receive<std::uint32_t>(key, deadline) != nonce) fail_protocol("the reply to its ping is wrong");
}

std::vector<std::byte> TorchStore::do_get(const std::string& key, Deadline deadline) {
  wait_for_key(key, deadline);
  send(Message(Call::Get).key(key), deadline);
  return receive_bytes(key, at_least(deadline, rest_of_torch_reply));
}

void TorchStore::wait_for_key(const std::string& key, Deadline deadline) {
  send(Message(Call::Wait).number(std::uint64_t{1}).key(key), deadline);
  if (!socket_.wait_readable(deadline)) {
    cancel_wait(key, at_least(deadline, rest_of_torch_reply));
    return;
  }
  if (receive<std::uint8_t>(key, deadline) != stop_waiting) fail_protocol("the reply to a wait is wrong");
}

// The server may have ended the wait before it receives the CancelWait: then it sends both replies.
void TorchStore::cancel_wait(const std::string& key, Deadline deadline) {
  send(Message(Call::CancelWait), deadline);
  const auto first = receive<std::uint8_t>(key, deadline);
  if (first == wait_canceled)
    throw StoreError(StoreKind::Timeout, "key " + in_quotes(key) + ": the TCPStore at " + socket_.peer() +
                                             " had no value for it before the deadline");
  if (first != stop_waiting || receive<std::uint8_t>(key, deadline) != wait_canceled)
    fail_protocol("the reply to the end of a wait is wrong");
}

std::int64_t TorchStore::do_add(const std::string& key, std::int64_t amount, Deadline deadline) {
  send(Message(Call::Add).key(key).number(amount), deadline);
  try {
    return receive<std::int64_t>(key, deadline);
  } catch (const StoreError& error) {
    if (error.kind() != StoreKind::Unreachable) throw;
    // The server closes the connection of a client that adds to what is not a number.
    throw StoreError(StoreKind::Protocol,
                     "add to " + in_quotes(key) + ": the connection has ended; the value may not be a number",
                     error.site(), std::current_exception());
  }
}

bool TorchStore::has_key(const std::string& key, Deadline deadline) {
  send(Message(Call::Check).number(std::uint64_t{1}).key(key), deadline);
  const auto reply = receive<std::uint8_t>(key, deadline);
  if (reply != ready && reply != not_ready) fail_protocol("the reply to a check is wrong");
  return reply == ready;
}

std::vector<std::byte> TorchStore::do_compare_set(const std::string& key, std::span<const std::byte> expected,
                                                  std::span<const std::byte> desired, Deadline deadline) {
  // The server replies `expected` also if the key has no value.
  if (!expected.empty() && !has_key(key, deadline)) return {};
  send(Message(Call::CompareSet).key(key).bytes(expected).bytes(desired), deadline);
  return receive_bytes(key, deadline);
}

void TorchStore::do_close(Deadline) { socket_.close(); }

}  // namespace cox::detail
