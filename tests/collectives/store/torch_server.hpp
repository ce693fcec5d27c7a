#pragma once

#include <coxswain/tests/collectives/store/plain_listener.hpp>

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace cox::test {

/// A server of PyTorch's TCPStore as far as the tests need it, written after the bytes that were recorded between a
/// client and a server of PyTorch 2.5.1. One thread serves all connections.
class TorchServer {
 public:
  struct Behaviour {
    bool has_ping = true;                       ///< false: as versions before 2.3, which close the connection
    bool answers_wait_at_cancel = false;        ///< the value is set just before the CANCEL_WAIT arrives
    bool answers = true;                        ///< false: reads, and sends nothing
    std::optional<std::uint32_t> ping_reply{};  ///< another number than that of the ping
  };

  TorchServer() : TorchServer(Behaviour{}) {}
  explicit TorchServer(Behaviour behaviour) : behaviour_(behaviour), thread_([this] { serve(); }) {}
  TorchServer(const TorchServer&) = delete;
  TorchServer& operator=(const TorchServer&) = delete;
  ~TorchServer() { stop(); }

  [[nodiscard]] std::uint16_t port() const noexcept { return listener_.port(); }
  /// Closes all connections, as the end of its process does.
  void stop() {
    if (!thread_.joinable()) return;
    const std::uint64_t one = 1;
    static_cast<void>(::write(stop_.get(), &one, sizeof(one)));
    thread_.join();
  }
  /// The keys that were set; after stop().
  [[nodiscard]] std::set<std::string> keys() const {
    std::set<std::string> names;
    for (const auto& [key, value] : values_) names.insert(key);
    return names;
  }

 private:
  struct Client {
    FileDescriptor socket;
    std::string input;
    bool is_valid = false;
    std::string awaited{};
    bool is_waiting = false;
  };

  /// Takes arguments from the front of the input; `complete` is false when there are too few bytes.
  struct Arguments {
    const std::string& input;
    std::size_t at = 0;
    bool complete = true;

    template <class T>
    T number() {
      T value{};
      if (input.size() - at < sizeof(T)) {
        complete = false;
        return value;
      }
      std::memcpy(&value, input.data() + at, sizeof(T));
      at += sizeof(T);
      return value;
    }
    std::string text() {
      const auto size = number<std::uint64_t>();
      if (!complete || input.size() - at < size) {
        complete = false;
        return {};
      }
      std::string value = input.substr(at, size);
      at += size;
      return value;
    }
  };

  template <class T>
  void reply(Client& client, const T& value) {
    if (behaviour_.answers) send_all(client.socket.get(), std::as_bytes(std::span(&value, 1)));
  }
  void reply_text(Client& client, const std::string& text) {
    reply(client, static_cast<std::uint64_t>(text.size()));
    if (behaviour_.answers) send_all(client.socket.get(), std::as_bytes(std::span(text)));
  }
  void wake(const std::string& key) {
    for (Client& client : clients_) {
      if (!client.is_waiting || client.awaited != key) continue;
      client.is_waiting = false;
      reply(client, std::uint8_t{0});
    }
  }

  /// Handles the first call of the input. False: more bytes are needed. Sets `ok` to false to close the connection.
  bool handle(Client& client, bool& ok) {
    Arguments arguments{client.input};
    const auto call = arguments.number<std::uint8_t>();
    if (!arguments.complete) return false;
    if (!client.is_valid) {
      const auto number = arguments.number<std::uint32_t>();
      if (!arguments.complete) return false;
      ok = call == 0 && number == 0x3C85F7CE;
      client.is_valid = true;
    } else if (call == 1) {
      const std::string key = arguments.text();
      const std::string value = arguments.text();
      if (!arguments.complete) return false;
      values_[key] = value;
      wake(key);
    } else if (call == 2) {
      const std::string key = arguments.text();
      const std::string expected = arguments.text();
      const std::string desired = arguments.text();
      if (!arguments.complete) return false;
      const auto found = values_.find(key);
      if (found == values_.end() && !expected.empty()) {
        reply_text(client, expected);
      } else {
        if (found == values_.end() || found->second == expected) values_[key] = desired;
        reply_text(client, values_[key]);
        wake(key);
      }
    } else if (call == 3) {
      const std::string key = arguments.text();
      if (!arguments.complete) return false;
      reply_text(client, values_[key]);
    } else if (call == 4) {
      const std::string key = arguments.text();
      auto sum = arguments.number<std::int64_t>();
      if (!arguments.complete) return false;
      char* end = nullptr;
      const std::string before = values_.contains(key) ? values_[key] : "0";
      sum += std::strtoll(before.c_str(), &end, 10);
      ok = end != before.c_str();
      if (ok) {
        values_[key] = std::to_string(sum);
        reply(client, sum);
        wake(key);
      }
    } else if (call == 5 || call == 6) {
      const auto count = arguments.number<std::uint64_t>();
      const std::string key = arguments.text();
      if (!arguments.complete) return false;
      ok = count == 1;
      const bool is_there = values_.contains(key);
      if (call == 5) {
        reply(client, static_cast<std::uint8_t>(is_there ? 0 : 1));
      } else if (is_there) {
        reply(client, std::uint8_t{0});
      } else {
        client.is_waiting = true;
        client.awaited = key;
      }
    } else if (call == 12) {
      if (behaviour_.answers_wait_at_cancel && client.is_waiting) {
        values_[client.awaited] = "just in time";
        wake(client.awaited);
      }
      client.is_waiting = false;
      reply(client, std::uint8_t{1});
    } else if (call == 13 && behaviour_.has_ping) {
      const auto nonce = arguments.number<std::uint32_t>();
      if (!arguments.complete) return false;
      reply(client, behaviour_.ping_reply.value_or(nonce));
    } else {
      ok = false;
    }
    client.input.erase(0, arguments.at);
    return true;
  }

  /// False if the connection is to be closed.
  bool read(Client& client) {
    std::array<char, 65536> bytes{};
    const ssize_t size = ::recv(client.socket.get(), bytes.data(), bytes.size(), 0);
    if (size <= 0) return false;
    client.input.append(bytes.data(), static_cast<std::size_t>(size));
    bool ok = true;
    while (ok && !client.input.empty() && handle(client, ok)) {
    }
    return ok;
  }

  void serve() {
    for (;;) {
      std::vector<pollfd> watched{{.fd = stop_.get(), .events = POLLIN, .revents = 0},
                                  {.fd = listener_.descriptor(), .events = POLLIN, .revents = 0}};
      for (const Client& client : clients_)
        watched.push_back({.fd = client.socket.get(), .events = POLLIN, .revents = 0});
      if (::poll(watched.data(), watched.size(), -1) < 0) continue;
      for (std::size_t i = clients_.size(); i-- > 0;)
        if (watched[i + 2].revents != 0 && !read(clients_[i])) clients_.erase(clients_.begin() + static_cast<long>(i));
      if (watched[0].revents != 0) break;
      if (watched[1].revents != 0) clients_.push_back({.socket = listener_.accept(), .input = {}});
    }
    clients_.clear();
    listener_.shut_down();
  }

  Behaviour behaviour_;
  PlainListener listener_;
  std::map<std::string, std::string> values_;
  std::vector<Client> clients_;
  FileDescriptor stop_{::eventfd(0, EFD_CLOEXEC)};  // readable: the thread ends
  std::thread thread_;                              // last: it uses all of the above
};

}  // namespace cox::test
