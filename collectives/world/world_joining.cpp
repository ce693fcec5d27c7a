#include <coxswain/collectives/world/world_error.hpp>
#include <coxswain/collectives/world/world_session.hpp>

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
constexpr std::size_t most_unidentified = 1024;  // connections that have not said which process they come from
constexpr std::size_t most_hello = 32'768;       // bytes of a Hello: its devices have at most 24 KiB
constexpr std::chrono::milliseconds accept_again_after{50};

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
  const Time deadline = steady_clock::now() + options_.place.timeout;
  const std::unique_ptr<Store> store = options_.place.open_store(deadline);
  find_leader(store.get(), deadline);
  connect_data(deadline);
  running_since_ = last_heartbeat_ = steady_clock::now();
  if (io_.stopped()) io_.restart();
  thread_ = std::thread([this] { run(); });
  boost::asio::post(io_, [this] {
    is_running_ = true;
    for (Message& message : std::exchange(early_, {})) handle(std::move(message));
    send_heartbeats();
  });
  std::vector<DeviceId> devices;
  for (const ProcessFacts& facts : facts_) devices.insert(devices.end(), facts.devices.begin(), facts.devices.end());
  sequencer_.join_world(static_cast<std::uint16_t>(own_ + 1), std::move(devices), follower_, max_ahead_);
}

void WorldSession::run() noexcept {
  const auto keep_running = boost::asio::make_work_guard(io_);
  for (;;) {
    try {
      io_.run();
      return;
    } catch (const std::exception& error) {  // no memory, or a message that is wrong in a way that was not foreseen
      lose_world(std::string("the thread of its connections has failed: ") + error.what());
    }
  }
}

void WorldSession::find_leader(Store* store, Time deadline) {
  const Rendezvous& rendezvous = options_.place.rendezvous;
  if (own_ == 0) {
    const bool one_host = options_.place.local_processes == options_.place.processes;
    listen(!rendezvous.host.empty() ? interface_towards(rendezvous.host)
           : one_host               ? address(boost::asio::ip::address_v4::loopback())
                                    : interface_towards(options_.place.host));
    token_ = random_token();
    facts_[0] = own_facts();
    accept_control();
    const auto endpoint = control_acceptor_.local_endpoint();
    store->set(
        leader_key,
        bytes_of(fmt::format("{} {} {}", endpoint.address().to_string(), endpoint.port(), to_hexadecimal(token_))),
        deadline);
    if (!run_until(deadline,
                   [this] { return std::ranges::none_of(facts_, [](const auto& its) { return its.host.empty(); }); }))
      throw WorldError(WorldError::Kind::Timeout,
                       names_of_missing() + " did not join the world in time (setting world.timeout)");
    store->close(deadline);  // the others have closed it before they said Hello
    control_acceptor_.close();
    for (const Link& link : unidentified_) link->close();
    unidentified_.clear();
    {
      const std::lock_guard lock(mutex_);
      present_ = facts_.size() - 1;
    }
    leader_.emplace(facts_, LeaderOptions{.max_ahead = options_.max_ahead,
                                          .max_asked = std::max<std::size_t>(4096, 2 * options_.max_ahead)});
    for (std::uint16_t process = 1; process < facts_.size(); ++process) links_[process]->send(leader_->welcome());
    return;
  }
  const LeaderAddress leader = parse_leader(store->get(leader_key, deadline));
  store->close(deadline);
  token_ = leader.token;
  connect_to_leader(leader.host, leader.port, deadline);
  error_code ignored;
  listen(to_leader_->socket().local_endpoint(ignored).address());
  facts_[own_] = own_facts();
  to_leader_->send(Hello{.token = token_,
                         .library = COX_VERSION,
                         .run = options_.place.run,
                         .process = own_,
                         .processes = options_.place.processes,
                         .facts = facts_[own_]});
  to_leader_->start({.received =
                         [this](Message message) {
                           if (auto* const welcome = std::get_if<Welcome>(&message)) {
                             if (welcome->processes.size() != facts_.size()) {
                               refused_ = "the leader has another number of processes";
                               return;
                             }
                             facts_ = std::move(welcome->processes);
                             max_ahead_ = static_cast<std::size_t>(welcome->max_ahead);
                             is_welcome_ = true;
                           } else if (const auto* const rejected = std::get_if<Rejected>(&message)) {
                             refused_ = rejected->text;
                           } else if (const auto* const gone = std::get_if<Gone>(&message)) {
                             refused_ = gone->text;
                           } else {
                             early_.push_back(std::move(message));
                           }
                         },
                     .ended =
                         [this](const std::string& why) {
                           if (!refused_.empty()) return;
                           has_lost_leader_ = true;
                           refused_ = "the connection to the process that leads the world has ended: " + why;
                         }});
  if (!run_until(deadline, [this] { return is_welcome_ || !refused_.empty(); }))
    throw WorldError(WorldError::Kind::Timeout,
                     "not all processes of the world have joined in time (setting world.timeout)");
  if (!is_welcome_ && has_lost_leader_) throw WorldError(WorldError::Kind::Unreachable, refused_);
  if (!is_welcome_)
    throw WorldError(WorldError::Kind::Refused, fmt::format("process {} was refused: {}", own_, refused_));
}

void WorldSession::listen(const address& at) {
  const auto open = [&](Tcp::acceptor& acceptor) {
    acceptor.open(at.is_v6() ? Tcp::v6() : Tcp::v4());
    acceptor.bind(Tcp::endpoint(at, 0));
    acceptor.listen();
  };
  try {
    if (own_ == 0) open(control_acceptor_);
    open(data_acceptor_);
  } catch (const boost::system::system_error& error) {
    throw WorldError(WorldError::Kind::Unreachable, "cannot listen on " + at.to_string() + ": " + error.what());
  }
}

void WorldSession::accept_control() {
  control_acceptor_.async_accept([this](const error_code& failed, Tcp::socket socket) {
    if (!control_acceptor_.is_open()) return;
    if (!failed && unidentified_.size() < most_unidentified) {
      const auto link = std::make_shared<ControlLink>(std::move(socket), most_hello);
      unidentified_.insert(link);
      const std::weak_ptr<ControlLink> weak = link;
      const auto timer = std::make_shared<boost::asio::steady_timer>(io_, options_.identified_within);
      timer->async_wait([this, weak, timer](const error_code&) {
        const Link silent = weak.lock();
        if (silent && unidentified_.erase(silent) != 0) silent->close();
      });
      link->start({.received =
                       [this, weak](Message message) {
                         if (const Link sender = weak.lock()) receive_hello(sender, std::move(message));
                       },
                   .ended =
                       [this, weak](const std::string&) {
                         if (const Link sender = weak.lock()) unidentified_.erase(sender);
                       }});
    }
    accept_again(failed, &WorldSession::accept_control);
  });
}

// A lack of descriptors, for example, lasts for a while: without the pause, the loop would fail again at once.
void WorldSession::accept_again(const error_code& failed, void (WorldSession::*accept)()) {
  if (!failed) return (this->*accept)();
  const auto timer = std::make_shared<boost::asio::steady_timer>(io_, accept_again_after);
  timer->async_wait([this, timer, accept](const error_code&) { (this->*accept)(); });
}

void WorldSession::receive_hello(const Link& link, Message message) {
  unidentified_.erase(link);
  const auto* const hello = std::get_if<Hello>(&message);
  if (hello == nullptr) return link->close();  // another program
  const std::string objection = objection_to(*hello);
  if (!objection.empty()) {
    link->send(Rejected{.text = objection});
    return link->close();
  }
  facts_[hello->process] = hello->facts;
  links_[hello->process] = link;
  link->restart(
      {.received = [this, process = hello->process](Message next) { handle_as_leader(process, std::move(next)); },
       .ended =
           [this, process = hello->process](const std::string& why) {
             if (leader_)
               return lose_process(process, CollectiveError::Kind::ProcessGone, "its connection has ended: " + why);
             facts_[process] = {};  // it may try again
             links_[process] = nullptr;
           }});
}

std::string WorldSession::objection_to(const Hello& hello) const {
  if (hello.protocol != protocol_version)
    return fmt::format("its protocol is version {}, that of process 0 is version {}", hello.protocol, protocol_version);
  if (!tokens_equal(hello.token, token_)) return "its token is not that of this world";
  if (hello.library != COX_VERSION)
    return fmt::format("it uses version {} of the library, process 0 uses {}", hello.library, COX_VERSION);
  if (hello.run != options_.place.run)
    return fmt::format("it belongs to run '{}', process 0 to run '{}'", hello.run, options_.place.run);
  if (hello.processes != facts_.size())
    return fmt::format("it expects {} processes, process 0 expects {}", hello.processes, facts_.size());
  if (hello.process == 0 || hello.process >= facts_.size()) return fmt::format("there is no process {}", hello.process);
  if (!facts_[hello.process].host.empty())
    return fmt::format("process {} has joined already: {}, pid {}", hello.process, facts_[hello.process].host,
                       facts_[hello.process].pid);
  if (hello.facts.host.empty()) return "it has no host name";
  return {};
}

std::string WorldSession::names_of_missing() const {
  std::string names;
  for (std::size_t process = 0; process < facts_.size(); ++process)
    if (facts_[process].host.empty()) names += fmt::format("{}process {}", names.empty() ? "" : ", ", process);
  return names;
}

void WorldSession::connect_to_leader(const std::string& host, std::uint16_t port, Time deadline) {
  const Tcp::endpoint endpoint(boost::asio::ip::make_address(host), port);
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
        fmt::format("the process that leads the world cannot be reached at {}:{}: {}", host, port, error.message()));
  }
  to_leader_ = std::make_shared<ControlLink>(std::move(socket));
}

// Connects to the processes with lower numbers, and accepts those with higher ones.
void WorldSession::connect_data(Time deadline) {
  accept_data();
  send_heartbeats_while_joining();
  for (std::uint16_t process = 0; process < own_; ++process) {
    const ProcessFacts& facts = facts_[process];
    const auto socket = std::make_shared<Tcp::socket>(io_);
    error_code ignored;
    const auto at = boost::asio::ip::make_address(facts.data_address, ignored);
    socket->async_connect(Tcp::endpoint(at, facts.data_port), [this, socket, process](const error_code& error) {
      if (error) {
        refused_ = fmt::format("{} cannot be reached: {}", name_of_process(process), error.message());
        return;
      }
      const auto hello = std::make_shared<std::vector<std::byte>>(
          frame_of(DataHello{.token = token_, .process = own_, .restart = options_.place.restart}));
      boost::asio::async_write(*socket, boost::asio::buffer(*hello),
                               [this, socket, process, hello](const error_code& failed, std::size_t) {
                                 if (failed)
                                   refused_ = name_of_process(process) + " cannot be reached: " + failed.message();
                                 else
                                   exchange_.add(process, std::make_shared<DataLink>(std::move(*socket)));
                               });
    });
  }
  const auto all = [this] {
    for (std::uint16_t process = 0; process < facts_.size(); ++process)
      if (process != own_ && !exchange_.has(process)) return false;
    return true;
  };
  const bool done = run_until(deadline, [&] {
    if (const auto gone = std::ranges::find(is_gone_, true); gone != is_gone_.end() && refused_.empty())
      refused_ = name_of_process(static_cast<std::uint16_t>(gone - is_gone_.begin())) + " is gone";
    return all() || !refused_.empty();
  });
  if (!refused_.empty()) throw WorldError(WorldError::Kind::Unreachable, refused_);
  if (!done) {
    std::string names;
    for (std::uint16_t process = 0; process < facts_.size(); ++process)
      if (process != own_ && !exchange_.has(process)) names += (names.empty() ? "" : ", ") + name_of_process(process);
    throw WorldError(WorldError::Kind::Timeout, "no connection to " + names + " in time (setting world.timeout)");
  }
  data_acceptor_.close();
  if (own_ != 0) {
    const Link& link = to_leader_;
    link->restart({.received =
                       [this](Message message) {
                         if (is_running_)
                           handle(std::move(message));
                         else
                           early_.push_back(std::move(message));  // join() has not returned
                       },
                   .ended =
                       [this](const std::string& why) {
                         lose_world("the connection to " + name_of_process(0) +
                                    ", which leads the world, has ended: " + why);
                       }});
  }
}

void WorldSession::accept_data() {
  data_acceptor_.async_accept([this](const error_code& failed, Tcp::socket accepted) {
    if (!data_acceptor_.is_open()) return;
    if (!failed && unidentified_data_ < most_unidentified)
      receive_data_hello(std::make_shared<Tcp::socket>(std::move(accepted)));
    accept_again(failed, &WorldSession::accept_data);
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
  ++unidentified_data_;
  boost::asio::async_read(
      *socket, boost::asio::buffer(*frame), [this, socket, frame, timer](const error_code& error, std::size_t) {
        --unidentified_data_;
        timer->cancel();
        if (error || !data_acceptor_.is_open()) return;
        try {
          const Message message = decode(std::span(*frame).subspan(4));
          const auto* const hello = std::get_if<DataHello>(&message);
          if (hello == nullptr || !tokens_equal(hello->token, token_)) return;
          if (hello->process <= own_ || hello->process >= facts_.size() || exchange_.has(hello->process)) return;
          exchange_.add(hello->process, std::make_shared<DataLink>(std::move(*socket)));
        } catch (const MalformedMessage&) {  // another program
        }
      });
}

}  // namespace cox::detail::world
