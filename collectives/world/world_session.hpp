#pragma once

#include <coxswain/collectives/discovery/world_place.hpp>
#include <coxswain/collectives/leader/follower.hpp>
#include <coxswain/collectives/leader/leader.hpp>
#include <coxswain/collectives/leader/world_message.hpp>
#include <coxswain/collectives/sequencer/sequencer.hpp>
#include <coxswain/collectives/world/control_link.hpp>
#include <coxswain/collectives/world/data_exchange.hpp>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace cox::detail::world {

struct SessionOptions {
  WorldPlace place{};
  std::vector<DeviceId> devices{};  ///< of this process, by their names in it
  std::size_t max_ahead = 1024;     ///< of process 0 counts: see LeaderOptions
  std::chrono::nanoseconds heartbeat{std::chrono::seconds(1)};
  std::chrono::nanoseconds silence{std::chrono::seconds(30)};
  /// How long a connection may exist before it has said which process it comes from.
  std::chrono::nanoseconds identified_within{std::chrono::seconds(10)};
};

/// The connections of this process in its world, and their thread. In process 0 the thread also leads the world.
class WorldSession {
 public:
  using Time = std::chrono::steady_clock::time_point;

  WorldSession(SessionOptions options, Sequencer& sequencer);
  WorldSession(const WorldSession&) = delete;
  WorldSession& operator=(const WorldSession&) = delete;
  ~WorldSession();

  /// Finds the other processes and connects to them. Blocks until all have joined. Throws WorldError, StoreError.
  void join();
  /// Leaves the world: refuses what waits for other processes. Process 0 waits until the others have left, at most
  /// until the deadline, because the world ends with it. Idempotent.
  void leave(Time deadline) noexcept;

  [[nodiscard]] DataExchange& exchange() noexcept { return exchange_; }
  /// By number. Constant once join() has returned.
  [[nodiscard]] const std::vector<ProcessFacts>& processes() const noexcept { return facts_; }

 private:
  using Tcp = boost::asio::ip::tcp;
  using Link = std::shared_ptr<ControlLink>;

  // world_joining.cpp: the start, on the thread that calls join()
  void find_leader(Store* store, Time deadline);
  void listen(const boost::asio::ip::address& address);
  void accept_control();
  void accept_data();
  void accept_again(const boost::system::error_code& failed, void (WorldSession::*accept)());
  void receive_hello(const Link& link, Message message);
  [[nodiscard]] std::string objection_to(const Hello& hello) const;
  void connect_to_leader(const std::string& host, std::uint16_t port, Time deadline);
  void connect_data(Time deadline);
  void receive_data_hello(const std::shared_ptr<Tcp::socket>& socket);
  template <class Done>
  [[nodiscard]] bool run_until(Time deadline, const Done& done);
  [[nodiscard]] std::string names_of_missing() const;
  [[nodiscard]] ProcessFacts own_facts() const;

  // The thread of the connections:
  void run() noexcept;
  void handle_as_leader(std::uint16_t process, Message message);
  void lose_process(std::uint16_t process, CollectiveError::Kind kind, const std::string& text);
  void lose_data(std::uint16_t process, CollectiveError::Kind kind, const std::string& text);
  void send_outgoing();
  void handle(Message message);
  void send_heartbeats();
  void send_heartbeats_while_joining();
  [[nodiscard]] bool check_silence(std::uint16_t process, const ControlLink& link, bool is_awaited, Time now);
  void data_link_ended(std::uint16_t process, const std::string& why);
  void lose_world(const std::string& why) noexcept;
  [[nodiscard]] bool is_lost();
  void close_links() noexcept;
  void drain_own();
  void arm_leader_timer();
  [[nodiscard]] std::string name_of_process(std::uint16_t process) const;

  /// Sends to the leader. Any thread.
  void send_to_leader(Message message) noexcept;
  void send_failed(const char* why) noexcept;

  const SessionOptions options_;
  const std::uint16_t own_;
  Sequencer& sequencer_;
  Follower follower_;
  Token token_{};
  std::vector<ProcessFacts> facts_;
  boost::asio::io_context io_;
  Tcp::acceptor control_acceptor_{io_};
  Tcp::acceptor data_acceptor_{io_};
  boost::asio::steady_timer heartbeat_timer_{io_};
  boost::asio::steady_timer leader_timer_{io_};
  std::vector<Link> links_;            // of process 0, by process
  Link to_leader_;                     // of the others; closed, but never reset
  std::set<Link> unidentified_;        // connections without a Hello so far
  std::size_t unidentified_data_ = 0;  // and those without a DataHello
  std::optional<Leader> leader_;
  DataExchange exchange_;
  std::string refused_;  // why the leader has refused this process, or why it cannot be reached
  bool is_welcome_ = false;
  bool has_lost_leader_ = false;              // before join() has returned
  std::size_t max_ahead_;                     // of process 0
  bool is_running_ = false;                   // join() has returned
  std::vector<Message> early_;                // messages that came before join() returned
  std::vector<bool> is_silent_;               // by process: its silence was reported
  std::vector<bool> is_gone_;                 // by process
  std::vector<std::exception_ptr> why_gone_;  // by process
  std::vector<bool> has_data_ended_;          // by process: its data link has ended
  std::vector<Time> awaited_since_;           // by process: since when others wait for it; Time::max(): they do not
  Time last_heartbeat_{};
  Time running_since_{};  // this process was not held up since then
  std::atomic<bool> is_out_of_memory_{false};

  std::mutex mutex_;
  std::vector<Message> own_messages_;  // of process 0 to the leader; guarded by mutex_, as all below
  bool is_lost_ = false;
  bool is_left_ = false;
  std::size_t present_ = 0;  // other processes that are connected
  std::condition_variable changed_;
  std::thread thread_;
};

}  // namespace cox::detail::world
