#pragma once

#include <coxswain/collectives/leader/broken_links.hpp>
#include <coxswain/collectives/leader/leader.hpp>
#include <coxswain/collectives/leader/world_message.hpp>
#include <coxswain/collectives/link/control_link.hpp>
#include <coxswain/collectives/link/link_acceptor.hpp>
#include <coxswain/collectives/link/silence.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace cox::detail::world {

struct LeaderServiceOptions {
  std::uint16_t processes = 2;
  std::string run{};
  Token token{};
  std::size_t max_ahead = 1024;                                 ///< see LeaderOptions
  std::chrono::nanoseconds heartbeat{std::chrono::seconds(1)};  ///< how often send_heartbeats() is called
  std::chrono::nanoseconds silence{std::chrono::seconds(30)};
  /// How long a connection may exist before it has said which process it comes from.
  std::chrono::nanoseconds identified_within{std::chrono::seconds(10)};
  /// The process of which this service is a part: it has no link, see receive_own(). Nothing: the service leads a world
  /// that its process does not take part in, and accepts successors of processes that are gone.
  std::optional<std::uint16_t> own{};
};

/// Leads a world: accepts its processes, orders their operations (Leader), and notices processes that are gone or
/// silent. If processes that live have lost the connection between them, it decides which one leaves. All functions are
/// for the thread of the io_context, and for the thread that starts it before it runs.
class LeaderService {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Kind = CollectiveError::Kind;
  struct Handlers {
    /// A message of the leader to the own process.
    std::function<void(Message)> to_own{};
    /// The own process has sent a message that is not valid.
    std::function<void(const std::string& fault)> own_failed{};
    /// A process other than the own one is gone. The text names it.
    std::function<void(std::uint16_t process, Kind kind, const std::string& text)> lost{};
    /// A process has sent a message. Must not throw.
    std::function<void(bool is_heartbeat)> received{};
    /// The world goes on without a process that has not left it, and may still run. Called after `lost`.
    std::function<void(std::uint16_t process, std::uint32_t restart)> expelled{};
  };

  LeaderService(boost::asio::io_context& io, LeaderServiceOptions options, Handlers handlers);
  LeaderService(const LeaderService&) = delete;
  LeaderService& operator=(const LeaderService&) = delete;

  /// Listens on a port of this address, and accepts processes. Throws WorldError Unreachable.
  void listen(const boost::asio::ip::address& address);
  [[nodiscard]] boost::asio::ip::tcp::endpoint endpoint() const { return acceptor_.endpoint(); }

  /// The own process takes part.
  void set_own(ProcessFacts facts) { facts_[*options_.own] = std::move(facts); }
  /// Whether all processes have joined.
  [[nodiscard]] bool is_complete() const noexcept;
  [[nodiscard]] std::string names_of_missing() const;
  /// Starts the world: sends a Welcome to all processes. Without an own process the service calls it when all have
  /// joined. Precondition: is_complete().
  void start();

  /// The own process has connected to all others.
  void note_own_connected() { note_connected(*options_.own); }
  /// All processes of the new world that are still present have connected to each other, and were sent that.
  [[nodiscard]] bool are_all_connected() const noexcept { return are_all_connected_; }
  /// Those of them that have not yet. Precondition: start() was called.
  [[nodiscard]] std::string names_of_unconnected() const;

  /// A message of the own process.
  void receive_own(Message message);
  /// Sends heartbeats, looks for processes that are silent, and for processes that must leave because their connections
  /// are broken. To be called in each period of heartbeats; `running_since`: this process was not held up since then.
  void send_heartbeats(Time now, Time running_since);
  void close() noexcept;

  /// By number: of processes that have not joined yet, without a host; of those that are gone, the last ones.
  [[nodiscard]] const std::vector<ProcessFacts>& facts() const noexcept { return facts_; }
  /// Number of processes that are present, without the own one.
  [[nodiscard]] std::size_t present() const noexcept;
  /// For people: the processes, and the operations that wait for some of them, a line each.
  [[nodiscard]] std::string describe(Time now) const;

 private:
  using Link = std::shared_ptr<ControlLink>;

  [[nodiscard]] std::string name(std::uint16_t process) const { return name_of_process(process, facts_[process]); }
  void receive_hello(const Link& link, Message message);
  [[nodiscard]] std::string objection_to(const Hello& hello) const;
  void add(const Link& link, ProcessFacts facts, std::uint16_t process);
  void note_connected(std::uint16_t process);
  void announce_connected();
  void welcome_next_successor();
  void receive(std::uint16_t process, Message message);
  void complete_successor();
  void drop_successor(std::uint16_t process);
  void lose(std::uint16_t process, Kind kind, const std::string& text, bool has_left = false);
  void lose_left();
  void note_broken(std::uint16_t process, const LinkCheck& check);
  void choose_leaving(Time now);
  void send_awaited();
  void send_heartbeat(std::uint16_t process);
  void send_outgoing();
  void arm_timer();

  boost::asio::io_context& io_;
  const LeaderServiceOptions options_;
  const Handlers handlers_;
  LinkAcceptor<ControlLink> acceptor_;
  boost::asio::steady_timer timer_{io_};
  std::vector<ProcessFacts> facts_;
  std::vector<Link> links_;  // by process
  std::optional<Leader> leader_;
  std::vector<bool> is_connected_;  // by process of the new world
  bool are_all_connected_ = false;
  /// Successors, one after the other: the first one connects to the other processes.
  struct Successor {
    std::uint16_t process;
    Link link;
    ProcessFacts facts;
  };
  std::deque<Successor> successors_;
  bool is_welcomed_ = false;                   // the first one of successors_ was sent a Welcome
  boost::asio::steady_timer connecting_{io_};  // until when it must have connected
  /// The last heartbeat of a process: see Heartbeat.
  struct Heard {
    std::uint64_t sent = 0;
    Time at{};
  };
  std::vector<Heard> heard_;       // by process
  std::vector<Silence> silences_;  // by process
  std::vector<Time> asked_about_;  // by process: when another one last asked how much it has sent; Time::min(): never
  BrokenLinks broken_links_;
  Time last_heartbeats_{};      // when they were sent
  Time uninterrupted_since_{};  // by a pause that could matter to broken_links_
};

}  // namespace cox::detail::world
