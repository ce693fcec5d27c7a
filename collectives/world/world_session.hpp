#pragma once

#include <coxswain/collectives/discovery/world_place.hpp>
#include <coxswain/collectives/leader/follower.hpp>
#include <coxswain/collectives/leader/world_message.hpp>
#include <coxswain/collectives/link/clock_offset.hpp>
#include <coxswain/collectives/link/control_link.hpp>
#include <coxswain/collectives/link/data_link.hpp>
#include <coxswain/collectives/link/run_connections.hpp>
#include <coxswain/collectives/link/silence.hpp>
#include <coxswain/collectives/link/stall.hpp>
#include <coxswain/collectives/link/unidentified.hpp>
#include <coxswain/collectives/sequencer/sequencer.hpp>
#include <coxswain/collectives/watch/watchdog.hpp>
#include <coxswain/collectives/world/data_exchange.hpp>
#include <coxswain/collectives/world/leader_service.hpp>
#include <coxswain/collectives/world/mark_exchange.hpp>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace cox::detail::world {

struct SessionOptions {
  WorldPlace place{};
  std::vector<DeviceId> devices{};  ///< of this process, by their names in it
  std::string versions{};           ///< ProcessFacts::versions
  std::size_t max_ahead = 1024;     ///< of the leader counts: see LeaderOptions
  std::chrono::nanoseconds heartbeat{std::chrono::seconds(1)};
  std::chrono::nanoseconds silence{std::chrono::seconds(30)};
  /// How long a connection may exist before it has said which process it comes from.
  std::chrono::nanoseconds identified_within{std::chrono::seconds(10)};
};

/// The connections of this process in its world, and their thread. In process 0 the thread also leads the world, unless
/// another process does that does not take part in it (Rendezvous::Kind::Leader).
class WorldSession {
 public:
  using Time = std::chrono::steady_clock::time_point;

  WorldSession(SessionOptions options, Sequencer& sequencer);
  WorldSession(const WorldSession&) = delete;
  WorldSession& operator=(const WorldSession&) = delete;
  ~WorldSession();

  /// Finds the other processes and connects to them. Blocks until all have joined and have connected to each other; one
  /// that ends before fails only those that had no connection to it. Throws WorldError, StoreError.
  void join();
  /// Leaves the world: refuses what waits for other processes. Process 0 waits until the others have left, at most
  /// until the deadline, because the world ends with it. Idempotent.
  void leave(Time deadline) noexcept;

  [[nodiscard]] DataExchange& exchange() noexcept { return exchange_; }
  [[nodiscard]] MarkExchange& marks() noexcept { return marks_; }
  /// By number.
  [[nodiscard]] std::vector<ProcessFacts> processes() const;
  /// Blocks until no process is gone, or the deadline. Returns whether none is. Throws CollectiveError WorldGone.
  [[nodiscard]] bool wait_until_complete(Time deadline);

 private:
  using Tcp = boost::asio::ip::tcp;
  using Link = std::shared_ptr<ControlLink>;

  // world_joining.cpp: the start, on the thread that calls join()
  void lead(Store& store, Time deadline);
  void follow(Store* store, Time deadline);
  void listen_for_data(const boost::asio::ip::address& address);
  void receive_before_start(Message message);
  void connect_to_leader(const std::string& host, std::uint16_t port, Time deadline);
  void connect_data(Time deadline);
  void connect_data_to(std::uint16_t process);
  [[nodiscard]] std::string text_of_gone() const;
  void add_data_link(std::uint16_t process, std::shared_ptr<DataLink> link);
  [[nodiscard]] bool is_data_hello_of(std::uint16_t process, std::span<const std::byte> frame) const;
  void accept_data();
  void receive_data_hello(const std::shared_ptr<Tcp::socket>& socket);
  void accept_data_of(const DataHello& hello, Tcp::socket socket);
  template <class Done>
  [[nodiscard]] bool run_until(Time deadline, const Done& done);
  [[nodiscard]] ProcessFacts own_facts() const;

  // The thread of the connections:
  void run() noexcept;
  void note_lost(std::uint16_t process, CollectiveError::Kind kind, const std::string& text);
  void note_joined(std::uint16_t process, ProcessFacts facts);
  void lose_data(std::uint16_t process, CollectiveError::Kind kind, const std::string& text);
  void lose_device_work(std::uint16_t process, CollectiveError::Kind kind, const std::string& text);
  void handle(Message message);
  [[nodiscard]] Time begin_heartbeats();
  void send_heartbeats();
  void note_heartbeat(const Heartbeat& heartbeat);
  void send_heartbeats_while_joining();
  void check_links(const std::vector<bool>& awaited, Time now);
  void end_broken(std::uint16_t process, DataLink& link, const std::string& why);
  void report_broken(std::uint16_t process);
  void answer(const LinkCheck& check);
  void poll_completed();
  void data_link_ended(std::uint16_t process, const std::string& why);
  void lose_world(const std::string& why) noexcept;
  [[nodiscard]] bool has_left();
  void lose_device_world(const std::exception_ptr& why, bool only_busy) noexcept;
  [[nodiscard]] std::chrono::nanoseconds given_up_after() const noexcept;
  [[nodiscard]] bool is_lost();
  void close_links() noexcept;
  void drain_own();
  [[nodiscard]] std::string name_of_process(std::uint16_t process) const;
  [[nodiscard]] std::string name_of_leader() const;

  /// Sends to the leader. Any thread.
  void send_to_leader(std::span<Message> messages) noexcept;
  void send_to_leader(Message message) noexcept { send_to_leader(std::span(&message, 1)); }
  void send_failed(const char* why) noexcept;

  const SessionOptions options_;
  const std::uint16_t own_;
  Sequencer& sequencer_;
  Follower follower_;
  Token token_{};
  mutable std::mutex facts_mutex_;  // only the thread of the connections, or that of join(), changes facts_
  std::vector<ProcessFacts> facts_;
  ConnectionSpin spin_;
  boost::asio::io_context io_;
  Tcp::acceptor data_acceptor_{io_};
  boost::asio::steady_timer heartbeat_timer_{io_};
  const bool leads_;                      // this process
  std::optional<LeaderService> service_;  // if it leads
  Link to_leader_;                        // if another one leads; closed, but never reset
  Silence leader_silence_;
  ClockOffset leader_clock_;
  std::uint64_t leader_sent_ = 0;  // its last heartbeat's Heartbeat::sent; 0: there was none
  Time leader_heard_{};            // when that one came
  DataExchange exchange_;
  MarkExchange marks_;
  std::string refused_;  // why the leader has refused this process, or why it cannot be reached
  bool is_welcome_ = false;
  std::vector<bool> has_connected_;  // by process: there is a data link, or was one
  bool are_all_connected_ = false;   // says the leader, if another process leads
  bool has_lost_leader_ = false;     // before join() has returned
  std::string awaited_;              // for what the leader waits, before join() has returned
  Unidentified<boost::asio::ip::tcp::socket> unidentified_{most_unidentified};  // for data, without a DataHello so far
  bool is_successor_ = false;   // this process: the world has been started before
  std::size_t max_ahead_;       // of the leader
  bool is_running_ = false;     // join() has returned
  std::vector<Message> early_;  // messages that came before join() returned
  struct SuccessorLink {
    std::uint32_t restart;
    std::shared_ptr<DataLink> link;
  };
  std::map<std::uint16_t, SuccessorLink> of_successors_;  // that the leader has not announced yet
  std::vector<std::exception_ptr> why_gone_;              // by process
  std::vector<bool> has_data_ended_;                      // by process: its data link has ended
  std::vector<Stall> stalls_;                             // by process: of its data link
  Time last_heartbeat_{};
  Time running_since_{};  // this process was not held up since then
  std::atomic<bool> is_out_of_memory_{false};

  std::mutex mutex_;
  std::vector<Message> own_messages_;  // to service_; guarded by mutex_, as all below
  bool is_lost_ = false;
  bool is_left_ = false;
  bool is_announced_ = false;     // this process, which is a successor
  std::vector<bool> is_gone_;     // by process: the leader says so
  std::vector<bool> is_missing_;  // by process: the leader says so, or the connection to it has ended
  std::condition_variable changed_;
  std::thread thread_;
  Watchdog polling_;  // destroyed first
};

}  // namespace cox::detail::world
