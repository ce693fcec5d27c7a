#pragma once

#include <coxswain/collectives/link/child_processes.hpp>
#include <coxswain/collectives/link/frame_link.hpp>
#include <coxswain/collectives/link/unidentified.hpp>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>

namespace cox::detail::world {

/// Accepts connections, each of which must send its first message in time. If there are too many that have not done so,
/// the oldest is closed for each new one (Unidentified). `Link` is a MessageLink. All functions are for
/// the thread of the io_context, and for the thread that starts it before it runs; the object must outlive the calls of
/// its handlers.
template <class Link>
class LinkAcceptor {
 public:
  using Tcp = boost::asio::ip::tcp;
  /// Takes a connection and its first message. It restarts the connection with handlers of its own, or closes it.
  using Identify = std::function<void(const std::shared_ptr<Link>& link, typename Link::Message first)>;

  /// `largest_first`: bytes of a first message. `identified_within`: how long a connection may exist before it has sent
  /// one. `most`: connections that have not sent one.
  LinkAcceptor(boost::asio::io_context& io, std::size_t largest_first, std::chrono::nanoseconds identified_within,
               Identify identify, std::size_t most = most_unidentified)
      : io_(io),
        largest_first_(largest_first),
        identified_within_(identified_within),
        identify_(std::move(identify)),
        unidentified_(most) {}
  LinkAcceptor(const LinkAcceptor&) = delete;
  LinkAcceptor& operator=(const LinkAcceptor&) = delete;

  /// Listens at this address and port (0: any free one), and accepts. Throws boost::system::system_error.
  void listen(const Tcp::endpoint& at) {
    acceptor_.open(at.protocol());
    keep_from_children(acceptor_.native_handle());
    // A port that an ended process had can be used again at once.
    if (at.port() != 0) acceptor_.set_option(Tcp::acceptor::reuse_address(true));
    acceptor_.bind(at);
    acceptor_.listen();
    accept();
  }
  [[nodiscard]] Tcp::endpoint endpoint() const { return acceptor_.local_endpoint(); }
  /// Accepts no more, and closes the connections that have not sent their first message.
  void close() noexcept {
    boost::system::error_code ignored;
    acceptor_.close(ignored);
    for (const auto& link : unidentified_.take_all()) link->close();
  }

 private:
  void accept() {
    acceptor_.async_accept([this](const boost::system::error_code& failed, Tcp::socket socket) {
      if (!acceptor_.is_open()) return;
      if (!failed) {
        admit(std::move(socket));
        return accept();
      }
      // A lack of descriptors, for example, lasts for a while: without the pause, this would fail again at once.
      const auto timer = std::make_shared<boost::asio::steady_timer>(io_, accept_again_after);
      timer->async_wait([this, timer](const boost::system::error_code&) { accept(); });
    });
  }

  void admit(Tcp::socket socket) {
    const auto link = std::make_shared<Link>(std::move(socket), largest_first_);
    if (const auto oldest = unidentified_.add(link)) oldest->close();
    const std::weak_ptr<Link> weak = link;
    const auto timer = std::make_shared<boost::asio::steady_timer>(io_, identified_within_);
    timer->async_wait([this, weak, timer](const boost::system::error_code&) {
      const auto silent = weak.lock();
      if (silent && unidentified_.remove(silent)) silent->close();
    });
    link->start({.received =
                     [this, weak](typename Link::Message first) {
                       const auto sender = weak.lock();
                       if (!sender || !unidentified_.remove(sender)) return;
                       identify_(sender, std::move(first));
                     },
                 .ended =
                     [this, weak](const std::string&) {
                       if (const auto sender = weak.lock()) unidentified_.remove(sender);
                     }});
  }

  boost::asio::io_context& io_;
  const std::size_t largest_first_;
  const std::chrono::nanoseconds identified_within_;
  const Identify identify_;
  Tcp::acceptor acceptor_{io_};
  Unidentified<Link> unidentified_;
};

}  // namespace cox::detail::world
