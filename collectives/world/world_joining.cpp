#include <coxswain/collectives/link/child_processes.hpp>
#include <coxswain/collectives/world/world_error.hpp>
#include <coxswain/collectives/world/world_session.hpp>
#include <coxswain/device_handle/base/deadline.hpp>
#include <coxswain/device_handle/thread/blocked_signals.hpp>

#include <boost/asio/buffer.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/ip/udp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

namespace cox::detail::world {
namespace {

using boost::asio::ip::address;
using boost::system::error_code;
using std::chrono::steady_clock;

constexpr std::string_view leader_key = "leader";

std::vector<std::byte> bytes_of(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

std::string text_of(std::span<const std::byte> bytes) {
  std::string text(bytes.size(), '\0');
  std::ranges::transform(bytes, text.begin(), [](std::byte byte) { return static_cast<char>(byte); });
  return text;
}

/// What the leader puts into the store: "address port token".
struct LeaderAddress {
  std::string host;
  std::uint16_t port = 0;
  Token token{};
};

LeaderAddress parse_leader(std::span<const std::byte> value) {
  const std::string text = text_of(value);
  LeaderAddress leader;
  const std::size_t first = text.find(' ');
  const std::size_t second = text.find(' ', first + 1);
  const auto token =
      second == std::string::npos ? std::nullopt : parse_token(std::string_view(text).substr(second + 1));
  const std::string port = second == std::string::npos ? "" : text.substr(first + 1, second - first - 1);
  if (!token || port.empty() || port.size() > 5 ||
      !std::ranges::all_of(port, [](char c) { return c >= '0' && c <= '9'; }))
    throw WorldError(WorldError::Kind::Unreachable, "the store has no address of the process that leads the world");
  leader.host = text.substr(0, first);
  leader.port = static_cast<std::uint16_t>(std::stoul(port));
  leader.token = *token;
  return leader;
}

// The address of the interface on which this process reaches a host: loopback if the host is.
address interface_towards(const std::string& host) {
  boost::asio::io_context io;
  boost::asio::ip::udp::resolver resolver(io);
  error_code error;
  const auto found = resolver.resolve(host, "9", error);
  if (!error)
    for (const auto& entry : found) {
      boost::asio::ip::udp::socket socket(io);  // connecting sends nothing, but selects the interface
      if (socket.connect(entry.endpoint(), error)) continue;
      const auto local = socket.local_endpoint(error);
      if (!error) return local.address();
    }
  throw WorldError(WorldError::Kind::Unreachable, "no interface reaches '" + host + "': " + error.message());
}

}  // namespace

ProcessFacts WorldSession::own_facts() const {
  ProcessFacts facts;
  facts.host = options_.place.host;
  facts.pid = static_cast<std::uint64_t>(::getpid());
  facts.restart = options_.place.restart;
  facts.versions = options_.versions;
  error_code ignored;
  const auto endpoint = data_acceptor_.local_endpoint(ignored);
  facts.data_address = endpoint.address().to_string();
  facts.data_port = endpoint.port();
  for (DeviceId device : options_.devices) {
    device.process = static_cast<std::uint16_t>(own_ + 1);
    facts.devices.push_back(device);
  }
  std::ranges::sort(facts.devices);
  return facts;
}

// Runs the connections on this thread until `done()`, at most until the deadline. Returns whether it is done.
template <class Done>
bool WorldSession::run_until(Time deadline, const Done& done) {
  while (!done()) {
    if (io_.stopped()) io_.restart();
    if (io_.run_one_until(deadline) == 0 && steady_clock::now() >= deadline) return done();
  }
  return true;
}

void WorldSession::join() {
  if (facts_.size() > max_processes)
    throw WorldError(WorldError::Kind::Refused, fmt::format("a world has at most {} processes", max_processes));
  const Time deadline = deadline_after(options_.place.timeout);
  const std::unique_ptr<Store> store = options_.place.open_store(deadline);
  if (leads_)
    lead(*store, deadline);
  else
    follow(store.get(), deadline);
  connect_data(deadline);
  running_since_ = last_heartbeat_ = steady_clock::now();
  if (io_.stopped()) io_.restart();
  spin_.set_processes(facts_);
  std::vector<DeviceId> devices;
  for (const ProcessFacts& facts : facts_) devices.insert(devices.end(), facts.devices.begin(), facts.devices.end());
  // First: the thread may find at once that the world is lost.
  sequencer_.join_world(static_cast<std::uint16_t>(own_ + 1), std::move(devices), follower_, max_ahead_);
  {
    const BlockedSignals blocked;
    thread_ = std::thread([this] { run(); });
  }
  boost::asio::post(io_, [this] {
    is_running_ = true;
    for (Message& message : std::exchange(early_, {})) handle(std::move(message));
    send_heartbeats();
  });
  if (!is_successor_) return;
  std::unique_lock lock(mutex_);
  if (!changed_.wait_until(lock, deadline, [this] { return is_announced_ || is_lost_; }) || is_lost_)
    throw WorldError(WorldError::Kind::Refused, fmt::format("process {} was not accepted as a successor", own_));
  lock.unlock();
  sequencer_.skip_broken_epochs();
}

void WorldSession::run() noexcept {
  const auto keep_running = boost::asio::make_work_guard(io_);
  for (;;) {
    try {
      run_connections(io_, spin_);
      return;
    } catch (const std::exception& error) {  // no memory, or a message that is wrong in a way that was not foreseen
      lose_world(std::string("the thread of its connections has failed: ") + error.what());
    }
  }
}

void WorldSession::lead(Store& store, Time deadline) {
  const WorldPlace& place = options_.place;
  const bool one_host = place.local_processes == place.processes;
  const address at = !place.rendezvous.host.empty() ? interface_towards(place.rendezvous.host)
                     : one_host                     ? address(boost::asio::ip::address_v4::loopback())
                                                    : interface_towards(place.host);
  token_ = random_token();
  service_.emplace(io_,
                   LeaderServiceOptions{.processes = place.processes,
                                        .run = place.run,
                                        .token = token_,
                                        .max_ahead = options_.max_ahead,
                                        .heartbeat = options_.heartbeat,
                                        .silence = options_.silence,
                                        .identified_within = options_.identified_within,
                                        .own = own_},
                   LeaderService::Handlers{.to_own = [this](Message message) { handle(std::move(message)); },
                                           .own_failed = [this](const std::string& fault) { lose_world(fault); },
                                           .lost = [this](std::uint16_t process, CollectiveError::Kind kind,
                                                          const std::string& text) { note_lost(process, kind, text); },
                                           .received = [this](bool is_heartbeat) { spin_.note(is_heartbeat); }});
  service_->listen(at);
  listen_for_data(at);
  service_->set_own(own_facts());
  send_heartbeats_while_joining();
  const auto endpoint = service_->endpoint();
  store.set(leader_key,
            bytes_of(fmt::format("{} {} {}", endpoint.address().to_string(), endpoint.port(), to_hexadecimal(token_))),
            deadline);
  if (!run_until(deadline, [this] { return service_->is_complete(); }))
    throw WorldError(WorldError::Kind::Timeout,
                     service_->names_of_missing() + " did not join the world in time (setting world.timeout)");
  store.close(deadline);  // the others have closed it before they said Hello
  facts_ = service_->facts();
  service_->start();
}

void WorldSession::follow(Store* store, Time deadline) {
  LeaderAddress leader{
      .host = options_.place.rendezvous.host, .port = options_.place.rendezvous.port, .token = options_.place.token};
  if (store != nullptr) {
    leader = parse_leader(store->get(leader_key, deadline));
    store->close(deadline);
  }
  token_ = leader.token;
  connect_to_leader(leader.host, leader.port, deadline);
  error_code ignored;
  listen_for_data(to_leader_->socket().local_endpoint(ignored).address());
  facts_[own_] = own_facts();
  to_leader_->send(Hello{.token = token_,
                         .library = COX_VERSION,
                         .run = options_.place.run,
                         .process = own_,
                         .processes = options_.place.processes,
                         .facts = facts_[own_]});
  to_leader_->start({.received = [this](Message message) { receive_before_start(std::move(message)); },
                     .ended =
                         [this](const std::string& why) {
                           if (!refused_.empty()) return;
                           has_lost_leader_ = true;
                           refused_ = "the connection to " + name_of_leader() + " has ended: " + why;
                         }});
  if (!run_until(deadline, [this] { return is_welcome_ || !refused_.empty(); }))
    throw WorldError(WorldError::Kind::Timeout,
                     (awaited_.empty() ? "not all processes of the world have joined" : awaited_) +
                         " in time (setting world.timeout)");
  if (!is_welcome_ && has_lost_leader_) throw WorldError(WorldError::Kind::Unreachable, refused_);
  if (!is_welcome_)
    throw WorldError(WorldError::Kind::Refused, fmt::format("process {} was refused: {}", own_, refused_));
}

void WorldSession::receive_before_start(Message message) {
  if (are_all_connected_) return early_.push_back(std::move(message));  // what follows the start
  if (std::holds_alternative<Connected>(message)) {
    are_all_connected_ = is_welcome_;
  } else if (auto* const awaited = std::get_if<Awaited>(&message)) {
    awaited_ = std::move(awaited->text);
  } else if (auto* const welcome = std::get_if<Welcome>(&message)) {
    if (welcome->processes.size() != facts_.size()) {
      refused_ = "the leader has another number of processes";
      return;
    }
    const ProcessFacts own = facts_[own_];
    facts_ = std::move(welcome->processes);
    // To a successor, its predecessor is absent. So may others be.
    is_successor_ = facts_[own_].host.empty();
    facts_[own_] = own;
    for (std::uint16_t process = 0; process < facts_.size(); ++process)
      if (facts_[process].host.empty())
        note_lost(process, CollectiveError::Kind::ProcessGone, name_of_process(process) + " is gone");
    max_ahead_ = static_cast<std::size_t>(welcome->max_ahead);
    awaited_.clear();  // for others from now on
    is_welcome_ = true;
  } else if (const auto* const rejected = std::get_if<Rejected>(&message)) {
    refused_ = rejected->text;
  } else if (const auto* const gone = std::get_if<Gone>(&message)) {
    if (gone->process >= facts_.size()) return;
    if (!is_successor_ && !has_connected_[gone->process]) {
      refused_ = gone->text;
      return;
    }
    // If a successor of that process has joined and ended meanwhile, its Joined is still in early_.
    std::erase_if(early_, [&](const Message& early) {
      const auto* const joined = std::get_if<Joined>(&early);
      return joined != nullptr && joined->process == gone->process;
    });
    note_lost(gone->process, gone->kind, gone->text);
  } else {
    early_.push_back(std::move(message));
  }
}

void WorldSession::listen_for_data(const address& at) {
  try {
    data_acceptor_.open(at.is_v6() ? Tcp::v6() : Tcp::v4());
    keep_from_children(data_acceptor_.native_handle());
    data_acceptor_.bind(Tcp::endpoint(at, 0));
    data_acceptor_.listen();
  } catch (const boost::system::system_error& error) {
    throw WorldError(WorldError::Kind::Unreachable, "cannot listen on " + at.to_string() + ": " + error.what());
  }
}

void WorldSession::connect_to_leader(const std::string& host, std::uint16_t port, Time deadline) {
  Tcp::resolver resolver(io_);
  error_code unknown;
  const auto found = resolver.resolve(host, std::to_string(port), unknown);
  if (unknown)
    throw WorldError(WorldError::Kind::Unreachable,
                     fmt::format("the address of the leader, '{}', is not known: {}", host, unknown.message()));
  const Tcp::endpoint endpoint = *found.begin();
  Tcp::socket socket(io_);
  error_code error = boost::asio::error::would_block;
  socket.async_connect(endpoint, [&error](const error_code& result) { error = result; });
  static_cast<void>(run_until(deadline, [&] { return error != boost::asio::error::would_block; }));
  if (error) {
    error_code ignored;
    socket.close(ignored);
    static_cast<void>(run_until(Time::max(), [&] { return error != boost::asio::error::would_block; }));
    throw WorldError(
        WorldError::Kind::Unreachable,
        fmt::format("the leader of the world cannot be reached at {}:{}: {}", host, port, error.message()));
  }
  to_leader_ = std::make_shared<ControlLink>(std::move(socket));
}

// Connects to the processes with lower numbers, and accepts those with higher ones. A successor connects to all.
//
// Then a process of a new world waits until all have done so: one that returned from join() earlier could leave before
// the others have connected to it, or before they have read that it has accepted them.
void WorldSession::connect_data(Time deadline) {
  accept_data();
  running_since_ = last_heartbeat_ = steady_clock::now();
  send_heartbeats_while_joining();
  for (std::uint16_t process = 0; process < facts_.size(); ++process)
    if (process < own_ || (process > own_ && is_successor_))
      if (!is_gone_[process]) connect_data_to(process);
  const auto missing = [this] {
    std::string names;
    for (std::uint16_t process = 0; process < facts_.size(); ++process)
      if (process != own_ && !has_connected_[process] && !(is_successor_ && is_gone_[process]))
        names += (names.empty() ? "" : ", ") + name_of_process(process);
    return names;
  };
  bool has_said = is_successor_;
  const bool done = run_until(deadline, [&] {
    if (service_ ? service_->are_all_connected() : are_all_connected_) return true;
    if (!is_successor_ && refused_.empty()) refused_ = text_of_gone();
    if (!refused_.empty()) return true;
    if (!missing().empty()) return false;
    if (std::exchange(has_said, true)) return is_successor_;
    if (service_)
      service_->note_own_connected();
    else
      to_leader_->send(Connected{});
    return service_ && service_->are_all_connected();
  });
  if (!refused_.empty()) throw WorldError(WorldError::Kind::Unreachable, refused_);
  if (!done)
    throw WorldError(WorldError::Kind::Timeout,
                     (!missing().empty() ? "no connection to " + missing()
                      : service_         ? service_->names_of_unconnected() + " did not connect to all processes"
                      : awaited_.empty() ? "another process did not connect to all processes"
                                         : awaited_) +
                         " in time (setting world.timeout)");
  // Successors connect later.
  if (options_.place.rendezvous.kind != Rendezvous::Kind::Leader) data_acceptor_.close();
  if (leads_) return;
  to_leader_->restart({.received =
                           [this](Message message) {
                             if (is_running_)
                               handle(std::move(message));
                             else
                               early_.push_back(std::move(message));  // join() has not returned
                           },
                       .ended =
                           [this](const std::string& why) {
                             lose_world("the connection to " + name_of_leader() + " has ended: " + why);
                           }});
  if (is_successor_) to_leader_->send(Connected{});
}

// The error if a process is gone to which there was no connection; empty if there is none. It names all processes that
// are gone, since some end because of the first.
std::string WorldSession::text_of_gone() const {
  std::string names;
  std::size_t count = 0;
  bool is_needed = false;
  for (std::uint16_t process = 0; process < facts_.size(); ++process) {
    if (!is_gone_[process]) continue;
    is_needed = is_needed || !has_connected_[process];
    names += (++count == 1 ? "" : ", ") + name_of_process(process);
  }
  return is_needed ? names + (count == 1 ? " is gone" : " are gone") : "";
}

// The other process answers, so that a successor knows that it is known before the leader announces it.
void WorldSession::connect_data_to(std::uint16_t process) {
  const ProcessFacts& facts = facts_[process];
  const auto socket = std::make_shared<Tcp::socket>(io_);
  const auto frame = std::make_shared<std::vector<std::byte>>(
      frame_of(DataHello{.token = token_, .process = own_, .restart = options_.place.restart}));
  const auto fail = [this, process](const error_code& error) {
    if (is_successor_) return;  // the leader reports a process that is gone
    refused_ = fmt::format("{} cannot be reached: {}", name_of_process(process), error.message());
  };
  error_code ignored;
  const auto at = boost::asio::ip::make_address(facts.data_address, ignored);
  socket->async_connect(
      Tcp::endpoint(at, facts.data_port), [this, socket, frame, fail, process](const error_code& error) {
        if (error) return fail(error);
        boost::asio::async_write(
            *socket, boost::asio::buffer(*frame),
            [this, socket, frame, fail, process](const error_code& unsent, std::size_t) {
              if (unsent) return fail(unsent);
              boost::asio::async_read(
                  *socket, boost::asio::buffer(*frame),
                  [this, socket, frame, fail, process](const error_code& unheard, std::size_t) {
                    if (unheard) return fail(unheard);
                    if (!is_data_hello_of(process, *frame)) return fail(boost::asio::error::connection_refused);
                    add_data_link(process, std::make_shared<DataLink>(
                                               std::move(*socket), DataLink::BytesBefore{.sent = frame->size(),
                                                                                         .received = frame->size()}));
                  });
            });
      });
}

void WorldSession::add_data_link(std::uint16_t process, std::shared_ptr<DataLink> link) {
  has_connected_[process] = true;
  exchange_.add(process, std::move(link));
}

bool WorldSession::is_data_hello_of(std::uint16_t process, std::span<const std::byte> frame) const {
  try {
    const Message message = decode(frame.subspan(length_bytes));
    const auto* const hello = std::get_if<DataHello>(&message);
    return hello != nullptr && tokens_equal(hello->token, token_) && hello->process == process;
  } catch (const MalformedMessage&) {  // another program
    return false;
  }
}

void WorldSession::accept_data() {
  data_acceptor_.async_accept([this](const error_code& failed, Tcp::socket accepted) {
    if (!data_acceptor_.is_open()) return;
    if (!failed) {
      receive_data_hello(std::make_shared<Tcp::socket>(std::move(accepted)));
      return accept_data();
    }
    // A lack of descriptors, for example, lasts for a while: without the pause, this would fail again at once.
    const auto timer = std::make_shared<boost::asio::steady_timer>(io_, accept_again_after);
    timer->async_wait([this, timer](const error_code&) { accept_data(); });
  });
}

// A connection that sends anything else is closed.
void WorldSession::receive_data_hello(const std::shared_ptr<Tcp::socket>& socket) {
  const auto expected = frame_of(DataHello{}).size();
  const auto frame = std::make_shared<std::vector<std::byte>>(expected);
  const auto timer = std::make_shared<boost::asio::steady_timer>(io_, options_.identified_within);
  timer->async_wait([weak = std::weak_ptr(socket), timer](const error_code& cancelled) {
    error_code ignored;
    if (const auto silent = weak.lock(); silent && !cancelled) silent->close(ignored);
  });
  error_code ignored;
  if (const auto oldest = unidentified_.add(socket)) oldest->close(ignored);
  boost::asio::async_read(
      *socket, boost::asio::buffer(*frame), [this, socket, frame, timer](const error_code& error, std::size_t) {
        timer->cancel();
        if (!unidentified_.remove(socket) || error || !data_acceptor_.is_open()) return;
        try {
          const Message message = decode(std::span(*frame).subspan(length_bytes));
          const auto* const hello = std::get_if<DataHello>(&message);
          if (hello != nullptr && tokens_equal(hello->token, token_) && hello->process < facts_.size())
            accept_data_of(*hello, std::move(*socket));
        } catch (const MalformedMessage&) {  // another program
        }
      });
}

void WorldSession::accept_data_of(const DataHello& hello, Tcp::socket socket) {
  const bool is_first = !is_running_ && hello.process > own_ && !has_connected_[hello.process] &&
                        hello.restart == facts_[hello.process].restart && !is_successor_;
  const bool is_of_successor = !is_first && hello.process != own_ && hello.restart > facts_[hello.process].restart;
  if (!is_first && !is_of_successor) return;
  const std::vector<std::byte> answer =
      frame_of(DataHello{.token = token_, .process = own_, .restart = options_.place.restart});
  const auto link =
      std::make_shared<DataLink>(std::move(socket), DataLink::BytesBefore{.sent = 0, .received = answer.size()});
  static_cast<void>(link->queue().push({.head = answer}));
  if (is_first) return add_data_link(hello.process, link);
  const auto [at, is_new] = of_successors_.try_emplace(hello.process, SuccessorLink{hello.restart, link});
  if (is_new) return;
  if (at->second.restart > hello.restart) return link->close();
  at->second.link->close();
  at->second = {hello.restart, link};
}

}  // namespace cox::detail::world
