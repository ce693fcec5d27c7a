#include <coxswain/tools/cox/nodes/head_connection.hpp>

#include <coxswain/collectives/discovery/rendezvous.hpp>
#include <coxswain/collectives/store/deadline_socket.hpp>
#include <coxswain/runtime/config/duration.hpp>
#include <coxswain/runtime/config/process_settings.hpp>

#include <boost/asio/connect.hpp>

#include <algorithm>
#include <utility>
#include <variant>

namespace cox::tools {
namespace {

using boost::system::error_code;
using std::chrono::steady_clock;

constexpr std::chrono::milliseconds longest_pause{250};

}  // namespace

HeadConnection::HeadConnection(const NodeOptions& options, NodeHello hello)
    : options_(options),
      hello_(std::move(hello)),
      heartbeat_(settings().get<std::chrono::nanoseconds>("world.heartbeat")),
      silence_limit_(settings().get<std::chrono::nanoseconds>("world.silence")) {
  connect();
}

HeadConnection::~HeadConnection() {
  if (link_) link_->close();
}

void HeadConnection::wait(const std::vector<int>& descriptors, std::optional<std::chrono::nanoseconds> longest) {
  wait_.wait(descriptors, longest);
}

void HeadConnection::connect() {
  resolver_.async_resolve(options_.host, std::to_string(options_.port), Tcp::resolver::numeric_service,
                          [this](const error_code& failed, const Tcp::resolver::results_type& found) {
                            if (failed) return connect_later(failed.message());
                            boost::asio::async_connect(socket_, found,
                                                       [this](error_code error, const Tcp::endpoint& at) {
                                                         // On one host, a connection to a port without a listener can
                                                         // be given this port as its own, and reach itself.
                                                         if (!error && socket_.local_endpoint(error) == at)
                                                           error = boost::asio::error::connection_refused;
                                                         if (error) return connect_later(error.message());
                                                         host_ = at.address().to_string();
                                                         begin();
                                                       });
                          });
}

void HeadConnection::connect_later(const std::string& why) {
  last_failure_ = why;
  error_code ignored;
  socket_.close(ignored);
  timer_.expires_after(pause_);
  pause_ = std::min(2 * pause_, longest_pause);
  timer_.async_wait([this](const error_code& failed) {
    if (!failed) connect();
  });
}

void HeadConnection::begin() {
  link_ = std::make_shared<NodeLink>(std::move(socket_));
  link_->start({.received =
                    [this](NodeMessage message) {
                      is_answered_ = true;
                      if (!std::holds_alternative<NodeHeartbeat>(message)) messages_.push_back(std::move(message));
                    },
                .ended = [this](const std::string& why) { lose("its connection has ended: " + why); }});
  link_->send(hello_);
  last_heartbeat_ = running_since_ = steady_clock::now();
  send_heartbeats();
}

std::optional<NodeMessage> HeadConnection::take() {
  if (messages_.empty()) return std::nullopt;
  NodeMessage message = std::move(messages_.front());
  messages_.pop_front();
  return message;
}

void HeadConnection::send(const NodeMessage& message) {
  if (is_connected()) link_->send(message);
}

void HeadConnection::lose(const std::string& why) {
  if (lost_) return;
  if (!is_answered_) return connect_again(why);
  lost_ = why;
  timer_.cancel();
  if (link_) link_->close();
}

void HeadConnection::connect_again(const std::string& why) {
  if (link_) link_->close();
  link_.reset();
  lost_.reset();
  is_answered_ = false;
  messages_.clear();
  connect_later(why);
}

std::string HeadConnection::address() const { return detail::host_and_port(options_.host, options_.port); }

std::string HeadConnection::leader(std::uint16_t port) const {
  return cox::to_string(Rendezvous{.kind = Rendezvous::Kind::Leader, .host = host_, .port = port});
}

void HeadConnection::send_heartbeats() {
  const Time now = steady_clock::now();
  // After a pause of this process, the head may have spoken without being heard.
  if (now - last_heartbeat_ > 2 * heartbeat_) running_since_ = now;
  last_heartbeat_ = now;
  link_->send(NodeHeartbeat{});
  if (silence_.is_too_long("the agent of node 0", std::max(link_->last_heard(), running_since_), true, silence_limit_,
                           now))
    return lose("it has been silent for " +
                format_duration(std::chrono::floor<std::chrono::milliseconds>(now - link_->last_heard())) +
                " (setting world.silence)");
  timer_.expires_after(heartbeat_);
  timer_.async_wait([this](const error_code& failed) {
    if (!failed && is_connected()) send_heartbeats();
  });
}

}  // namespace cox::tools
