#include <coxswain/collectives/store/tcp_store_server.hpp>

#include <coxswain/collectives/store/deadline_socket.hpp>
#include <coxswain/collectives/store/store_error.hpp>
#include <coxswain/collectives/store/store_message.hpp>
#include <coxswain/device_handle/thread/blocked_signals.hpp>
#include <coxswain/runtime/base/thread_name.hpp>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace cox::detail {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using MessageKind = StoreMessage::Kind;
using StoredBytes = std::vector<std::byte>;

constexpr std::size_t most_stored = 256ULL << 20U;  // bytes of all keys and values
constexpr std::size_t most_strangers = 64;          // connections without an accepted Hello
constexpr std::size_t most_replies = 16;            // queued for one connection
constexpr std::chrono::seconds longest_hello{10};

/// The keys and values.
class StoredValues {
 public:
  [[nodiscard]] const StoredBytes* find(const std::string& key) const {
    const auto found = values_.find(key);
    return found != values_.end() ? &found->second : nullptr;
  }
  void set(const std::string& key, StoredBytes value) {
    const StoredBytes* const before = find(key);
    const std::size_t freed = before != nullptr ? key.size() + before->size() : 0;
    const std::size_t stored = stored_ - freed + key.size() + value.size();
    if (stored > most_stored)
      throw StoreError(StoreError::Kind::TooLarge,
                       "the store is full: it holds at most " + std::to_string(most_stored) + " bytes");
    values_.insert_or_assign(key, std::move(value));
    stored_ = stored;
  }

 private:
  std::map<std::string, StoredBytes> values_;
  std::size_t stored_ = 0;
};

std::string run_in_words(const std::string& run, std::uint32_t restart) {
  return "run '" + run + "', restart " + std::to_string(restart);
}

}  // namespace

struct TcpStoreServer::Service {
  class Session;
  using Sessions = std::list<std::shared_ptr<Session>>;

  explicit Service(TcpStoreOptions chosen) : options(std::move(chosen)), closed(options.processes, false) {}

  void listen(Store::Deadline deadline);
  void accept();
  void admit(tcp::socket socket);
  void end(Session& session);
  void has_value(const std::string& key, const StoredBytes& value);
  void process_closed(std::uint16_t process);
  [[nodiscard]] StoreMessage answer(const StoreMessage& request);

  TcpStoreOptions options;
  asio::io_context io{1};
  tcp::acceptor acceptor{io};
  asio::steady_timer accept_again{io};
  // The service's thread only:
  Sessions sessions;
  StoredValues table;
  // Any thread:
  std::mutex mutex;
  std::condition_variable has_closed;
  std::vector<bool> closed;  // by process; guarded by mutex
  std::thread thread;        // last: it uses all of the above
};

/// One connection. On the service's thread only.
class TcpStoreServer::Service::Session : public std::enable_shared_from_this<Session> {
 public:
  Session(Service& service, tcp::socket socket) : service_(service), socket_(std::move(socket)) {}

  void start() {
    hello_timer_.expires_after(longest_hello);
    hello_timer_.async_wait([self = shared_from_this()](const error_code& error) {
      if (!error && self->is_stranger()) self->close();
    });
    read_length();
  }
  [[nodiscard]] bool is_stranger() const noexcept { return !welcomed_; }
  void close() {
    error_code ignored;
    socket_.close(ignored);
    hello_timer_.cancel();
    awaited_.reset();
    service_.end(*this);
  }
  /// Replies to a Get of `key` that waits.
  void has_value(const std::string& key, const StoredBytes& value) {
    if (!awaited_ || awaited_->key != key) return;
    StoreMessage reply;
    reply.kind = MessageKind::Value;
    reply.number = awaited_->number;
    reply.value = value;
    awaited_.reset();
    send(reply);
  }

 private:
  /// Runs a step; an exception in it ends this connection alone.
  template <class Step>
  void guarded(const error_code& error, Step&& step) {
    if (!socket_.is_open()) return;
    if (error) {
      close();
      return;
    }
    try {
      step();
    } catch (const std::exception&) {
      close();
    }
  }

  void read_length() {
    asio::async_read(socket_, asio::buffer(length_), [self = shared_from_this()](const error_code& error, std::size_t) {
      self->guarded(error, [&] { self->read_message(); });
    });
  }
  void read_message() {
    const std::size_t length = StoreMessage::length_of(length_);
    if (length > (welcomed_ ? StoreMessage::max_message : StoreMessage::max_hello)) {
      close();
      return;
    }
    body_.resize(length);
    asio::async_read(socket_, asio::buffer(body_), [self = shared_from_this()](const error_code& error, std::size_t) {
      self->guarded(error, [&] { self->handle(); });
    });
  }
  void handle() {
    const auto request = StoreMessage::decode(body_);
    if (!request || request->kind > MessageKind::Bye || welcomed_ == (request->kind == MessageKind::Hello)) {
      close();
      return;
    }
    awaited_.reset();
    if (request->kind == MessageKind::Hello) {
      const StoreMessage reply = judge(*request);
      process_ = request->process;
      welcomed_ = reply.kind == MessageKind::Done;
      if (welcomed_) hello_timer_.cancel();
      ends_after_reply_ = !welcomed_;
      send(reply);
    } else if (request->kind == MessageKind::Get && service_.table.find(request->key) == nullptr) {
      awaited_ = Awaited{request->key, request->number};
    } else {
      send(service_.answer(*request));
      if (request->kind == MessageKind::Bye) service_.process_closed(process_);
    }
    if (socket_.is_open() && !ends_after_reply_) read_length();
  }
  [[nodiscard]] StoreMessage judge(const StoreMessage& hello) const {
    const TcpStoreOptions& own = service_.options;
    StoreMessage reply;
    reply.number = hello.number;
    reply.kind = MessageKind::Failed;
    reply.amount = static_cast<std::int64_t>(StoreError::Kind::Refused);
    if (!tokens_equal(hello.token, own.token)) {
      reply.text = "the token is wrong";
    } else if (hello.text != own.run || hello.restart < own.restart) {
      reply.text =
          "it belongs to " + run_in_words(own.run, own.restart) + ", not to " + run_in_words(hello.text, hello.restart);
    } else if (hello.restart > own.restart) {
      reply.kind = MessageKind::Older;
      reply.text = "it belongs to " + run_in_words(own.run, own.restart);
    } else if (hello.process >= own.processes) {
      reply.text = "process " + std::to_string(hello.process) + " is not one of " + std::to_string(own.processes);
    } else {
      reply.kind = MessageKind::Done;
    }
    reply.text.resize(std::min(reply.text.size(), StoreMessage::max_text));
    return reply;
  }

  void send(const StoreMessage& reply) {
    if (replies_.size() >= most_replies) {
      close();
      return;
    }
    replies_.push_back(reply.frame());
    if (replies_.size() == 1) write();
  }
  void write() {
    asio::async_write(socket_, asio::buffer(replies_.front()),
                      [self = shared_from_this()](const error_code& error, std::size_t) {
                        self->guarded(error, [&] { self->has_written(); });
                      });
  }
  void has_written() {
    replies_.pop_front();
    if (!replies_.empty()) {
      write();
    } else if (ends_after_reply_) {
      close();
    }
  }

  struct Awaited {
    std::string key;
    std::uint32_t number;
  };

  Service& service_;
  tcp::socket socket_;
  asio::steady_timer hello_timer_{socket_.get_executor()};
  StoreMessage::Length length_{};
  StoredBytes body_;
  std::deque<StoredBytes> replies_;
  std::optional<Awaited> awaited_;  // the Get that waits
  std::uint16_t process_ = 0;
  bool welcomed_ = false;
  bool ends_after_reply_ = false;
};

void TcpStoreServer::Service::listen(Store::Deadline deadline) {
  constexpr std::chrono::milliseconds pause{20};
  const auto until = std::chrono::steady_clock::now() + time_until(deadline, std::chrono::seconds(5));
  tcp::resolver resolver(io);
  for (;;) {
    error_code error;
    const auto found = resolver.resolve(options.host, std::to_string(options.port),
                                        tcp::resolver::numeric_service | tcp::resolver::passive, error);
    for (const auto& each : found) {
      error_code ignored;
      acceptor.close(ignored);
      acceptor.open(each.endpoint().protocol(), error);
      if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
      if (!error) acceptor.bind(each.endpoint(), error);
      if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
      if (!error) return;
    }
    if (error != asio::error::address_in_use || std::chrono::steady_clock::now() + pause >= until)
      throw StoreError(
          StoreError::Kind::Unreachable,
          "process 0 cannot serve the store at " + host_and_port(options.host, options.port) + ": " + error.message());
    std::this_thread::sleep_for(pause);
  }
}

void TcpStoreServer::Service::accept() {
  acceptor.async_accept([this](const error_code& error, tcp::socket socket) {
    if (!acceptor.is_open()) return;
    if (error) {  // no descriptor is free, for instance
      accept_again.expires_after(std::chrono::milliseconds(50));
      accept_again.async_wait([this](const error_code& cancelled) {
        if (!cancelled) accept();
      });
      return;
    }
    try {
      admit(std::move(socket));
    } catch (const std::exception&) {
      // No memory for this connection: it is closed.
    }
    accept();
  });
}

void TcpStoreServer::Service::admit(tcp::socket socket) {
  const auto is_stranger = [](const auto& session) { return session->is_stranger(); };
  if (static_cast<std::size_t>(std::ranges::count_if(sessions, is_stranger)) >= most_strangers)
    (*std::ranges::find_if(sessions, is_stranger))->close();  // the oldest one
  error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  sessions.push_back(std::make_shared<Session>(*this, std::move(socket)));
  const std::shared_ptr<Session> session = sessions.back();
  session->start();
}

void TcpStoreServer::Service::end(Session& session) {
  std::erase_if(sessions, [&](const auto& each) { return each.get() == &session; });
}

void TcpStoreServer::Service::has_value(const std::string& key, const StoredBytes& value) {
  const Sessions waiting = sessions;  // a session that ends is removed from the list
  for (const auto& session : waiting) session->has_value(key, value);
}

void TcpStoreServer::Service::process_closed(std::uint16_t process) {
  const std::scoped_lock lock(mutex);
  closed[process] = true;
  has_closed.notify_all();
}

StoreMessage TcpStoreServer::Service::answer(const StoreMessage& request) {
  StoreMessage reply;
  reply.number = request.number;
  try {
    const StoredBytes* const before = table.find(request.key);
    StoredBytes after = before != nullptr ? *before : StoredBytes();
    bool has_changed = false;
    switch (request.kind) {
      case MessageKind::Set:
        after = request.value;
        has_changed = true;
        break;
      case MessageKind::Get: reply.kind = MessageKind::Value; break;
      case MessageKind::Add:
        reply.kind = MessageKind::Number;
        reply.amount = add_to_value(after, request.amount, request.key);
        after = value_of_number(reply.amount);
        has_changed = true;
        break;
      case MessageKind::CompareSet:
        reply.kind = MessageKind::Value;
        has_changed = after == request.expected;
        if (has_changed) after = request.value;
        break;
      default: break;  // Bye
    }
    if (has_changed) {
      table.set(request.key, after);
      has_value(request.key, after);
    }
    if (reply.kind == MessageKind::Value) reply.value = std::move(after);
  } catch (const StoreError& error) {
    reply = {};
    reply.number = request.number;
    reply.kind = MessageKind::Failed;
    reply.amount = static_cast<std::int64_t>(error.kind());
    reply.text = std::string(error.what()).substr(0, StoreMessage::max_text);
  }
  return reply;
}

TcpStoreServer::TcpStoreServer(TcpStoreOptions options, Store::Deadline deadline)
    : service_(std::make_unique<Service>(std::move(options))) {
  service_->listen(deadline);
  service_->accept();
  const BlockedSignals blocked;
  service_->thread = std::thread([service = service_.get()] {
    name_this_thread("cox store");
    service->io.run();
  });
}

TcpStoreServer::~TcpStoreServer() {
  service_->io.stop();
  service_->thread.join();
  service_->sessions.clear();
}

std::uint16_t TcpStoreServer::port() const noexcept {
  error_code ignored;
  return service_->acceptor.local_endpoint(ignored).port();
}

std::vector<std::uint16_t> TcpStoreServer::wait_until_closed(Store::Deadline deadline) {
  std::unique_lock lock(service_->mutex);
  const auto missing = [&] {
    std::vector<std::uint16_t> processes;
    for (std::size_t i = 0; i < service_->closed.size(); ++i)
      if (!service_->closed[i]) processes.push_back(static_cast<std::uint16_t>(i));
    return processes;
  };
  if (deadline == Store::Deadline::max()) {
    service_->has_closed.wait(lock, [&] { return missing().empty(); });
  } else {
    service_->has_closed.wait_until(lock, deadline, [&] { return missing().empty(); });
  }
  return missing();
}

}  // namespace cox::detail
