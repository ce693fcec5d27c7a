#include <coxswain/collectives/world/leader_service.hpp>

#include <coxswain/collectives/link/clock_offset.hpp>
#include <coxswain/collectives/nccl/device_versions.hpp>
#include <coxswain/collectives/sequencer/most_asked.hpp>
#include <coxswain/collectives/world/world_error.hpp>
#include <coxswain/runtime/error/log.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace cox::detail::world {
namespace {

using boost::asio::ip::address;
using boost::system::error_code;
using std::chrono::steady_clock;

constexpr std::size_t most_hello = 32'768;  // bytes of a Hello: its devices have at most 24 KiB
constexpr std::chrono::seconds successor_connects_within{30};
constexpr std::chrono::seconds broken_within{2};
constexpr std::chrono::milliseconds interruption{500};

}  // namespace

LeaderService::LeaderService(boost::asio::io_context& io, LeaderServiceOptions options, Handlers handlers)
    : io_(io),
      options_(std::move(options)),
      handlers_(std::move(handlers)),
      acceptor_(io_, most_hello, options_.identified_within,
                [this](const Link& link, Message message) { receive_hello(link, std::move(message)); }),
      facts_(options_.processes),
      links_(options_.processes),
      is_connected_(options_.processes),
      heard_(options_.processes),
      silences_(options_.processes),
      asked_about_(options_.processes, Time::min()) {}

void LeaderService::listen(const address& address) {
  try {
    acceptor_.listen({address, 0});
  } catch (const boost::system::system_error& error) {
    throw WorldError(WorldError::Kind::Unreachable, "cannot listen on " + address.to_string() + ": " + error.what());
  }
}

bool LeaderService::is_complete() const noexcept {
  return std::ranges::none_of(facts_, [](const ProcessFacts& facts) { return facts.host.empty(); });
}

std::string LeaderService::names_of_missing() const {
  std::string names;
  for (std::size_t process = 0; process < facts_.size(); ++process)
    if (facts_[process].host.empty()) names += fmt::format("{}process {}", names.empty() ? "" : ", ", process);
  return names;
}

std::string LeaderService::names_of_unconnected() const {
  std::string names;
  if (!leader_) return names;
  for (std::uint16_t process = 0; process < is_connected_.size(); ++process)
    if (!is_connected_[process] && leader_->is_present(process)) names += (names.empty() ? "" : ", ") + name(process);
  return names;
}

std::size_t LeaderService::present() const noexcept {
  return static_cast<std::size_t>(std::ranges::count_if(links_, [](const Link& link) { return link != nullptr; }));
}

void LeaderService::receive_hello(const Link& link, Message message) {
  auto* const hello = std::get_if<Hello>(&message);
  if (hello == nullptr) return link->close();  // another program
  const std::string objection = objection_to(*hello);
  if (!objection.empty()) {
    link->send(Rejected{.text = objection});
    return link->close();
  }
  const std::uint16_t process = hello->process;
  if (!leader_) {
    add(link, std::move(hello->facts), process);
    if (!options_.own && is_complete()) start();
    return;
  }
  // Its predecessor may have ended a moment ago, or still wait for its turn to join.
  if (leader_->is_present(process)) lose(process, Kind::ProcessGone, "it has a successor");
  drop_successor(process);
  link->restart({.received = [](const Message&) {},  // it waits for its Welcome
                 .ended =
                     [this, link = link.get()](const std::string&) {
                       std::erase_if(successors_, [&](const Successor& each) { return each.link.get() == link; });
                     }});
  successors_.push_back({.process = process, .link = link, .facts = std::move(hello->facts)});
  welcome_next_successor();
}

std::string LeaderService::objection_to(const Hello& hello) const {
  if (hello.protocol != protocol_version)
    return fmt::format("its protocol is version {}, that of the leader is version {}", hello.protocol,
                       protocol_version);
  if (!tokens_equal(hello.token, options_.token)) return "its token is not that of this world";
  if (hello.library != COX_VERSION)
    return fmt::format("it uses version {} of the library, the leader uses {}", hello.library, COX_VERSION);
  if (hello.run != options_.run)
    return fmt::format("it belongs to run '{}', the leader to run '{}'", hello.run, options_.run);
  if (hello.processes != facts_.size())
    return fmt::format("it expects {} processes, the leader expects {}", hello.processes, facts_.size());
  if (hello.process >= facts_.size() || hello.process == options_.own)
    return fmt::format("there is no process {}", hello.process);
  if (hello.facts.host.empty()) return "it has no host name";
  for (std::uint16_t process = 0; process < facts_.size(); ++process)
    if (process != hello.process && differ_in_nccl(facts_[process].versions, hello.facts.versions))
      return fmt::format("it uses {}, but process {} uses {}: NCCL must have one version in all processes",
                         hello.facts.versions, process, facts_[process].versions);
  const ProcessFacts& known = facts_[hello.process];
  if (!leader_) {
    if (!known.host.empty())
      return fmt::format("process {} has joined already: {}, pid {}", hello.process, known.host, known.pid);
    return {};
  }
  if (options_.own) return "the world has been started";
  if (hello.facts.restart <= known.restart)
    return fmt::format("process {} has joined already: {}, pid {}, restart {}", hello.process, known.host, known.pid,
                       known.restart);
  if (const auto other = std::ranges::find(successors_, hello.process, &Successor::process);
      other != successors_.end() && hello.facts.restart <= other->facts.restart)
    return fmt::format("process {} has a successor already", hello.process);
  if (hello.facts.devices != known.devices)
    return fmt::format("process {} had other devices before it was restarted", hello.process);
  return {};
}

void LeaderService::add(const Link& link, ProcessFacts facts, std::uint16_t process) {
  facts_[process] = std::move(facts);
  links_[process] = link;
  heard_[process] = {};
  silences_[process] = {};
  asked_about_[process] = Time::min();
  link->restart({.received = [this, process](Message next) { receive(process, std::move(next)); },
                 .ended =
                     [this, process](const std::string& why) {
                       if (leader_) return lose(process, Kind::ProcessGone, "its connection has ended: " + why);
                       facts_[process] = {};  // it may try again
                       links_[process] = nullptr;
                     }});
}

void LeaderService::start() {
  leader_.emplace(facts_, LeaderOptions{.max_ahead = options_.max_ahead, .max_asked = most_asked(options_.max_ahead)});
  if (options_.own) acceptor_.close();
  for (const Link& link : links_)
    if (link) link->send(leader_->welcome());
}

// A process that is gone, because it has left or for another reason, is not waited for: those that had not connected to
// it cannot join, and say so. A successor sends Connected before it counts as present.
void LeaderService::note_connected(std::uint16_t process) {
  is_connected_[process] = true;
  announce_connected();
}

void LeaderService::announce_connected() {
  if (are_all_connected_) return;
  for (std::uint16_t process = 0; process < is_connected_.size(); ++process)
    if (!is_connected_[process] && leader_->is_present(process)) return;
  are_all_connected_ = true;
  for (const Link& link : links_)
    if (link) link->send(Connected{});
}

void LeaderService::drop_successor(std::uint16_t process) {
  const auto found = std::ranges::find(successors_, process, &Successor::process);
  if (found == successors_.end()) return;
  if (found == successors_.begin()) is_welcomed_ = false;
  const Link link = found->link;
  successors_.erase(found);
  link->close();
}

// One at a time, so that each has the addresses of all processes that are present.
void LeaderService::welcome_next_successor() {
  if (successors_.empty() || is_welcomed_) return;
  is_welcomed_ = true;
  const Link link = successors_.front().link;
  link->restart({.received =
                     [this](const Message& message) {
                       if (std::holds_alternative<Connected>(message)) complete_successor();
                     },
                 .ended =
                     [this](const std::string&) {
                       successors_.pop_front();
                       is_welcomed_ = false;
                       welcome_next_successor();
                     }});
  link->send(leader_->welcome());
  // Longer than it takes to find a silent process, which does not answer it.
  connecting_.expires_after(options_.silence + successor_connects_within);
  connecting_.async_wait([this, weak = std::weak_ptr(link)](const error_code& failed) {
    const Link late = weak.lock();
    if (failed || !is_welcomed_ || successors_.front().link != late) return;
    late->close();
    const std::uint16_t process = successors_.front().process;
    const std::uint32_t restart = successors_.front().facts.restart;
    successors_.pop_front();
    is_welcomed_ = false;
    if (handlers_.expelled) handlers_.expelled(process, restart);  // it may be stopped
    welcome_next_successor();
  });
}

void LeaderService::complete_successor() {
  Successor successor = std::move(successors_.front());
  successors_.pop_front();
  is_welcomed_ = false;
  connecting_.cancel();
  const std::uint16_t process = successor.process;
  add(successor.link, successor.facts, process);
  is_connected_[process] = true;
  leader_->joined(process, std::move(successor.facts));
  cox::log::write(LogSubsystem::Collectives, LogLevel::Info, [&] { return name(process) + " has joined the world"; });
  send_outgoing();
  welcome_next_successor();
}

void LeaderService::receive_own(Message message) { receive(*options_.own, std::move(message)); }

void LeaderService::receive(std::uint16_t process, Message message) {
  const auto* const heartbeat = std::get_if<Heartbeat>(&message);
  if (handlers_.received) handlers_.received(heartbeat != nullptr);
  if (heartbeat != nullptr) {
    if (links_[process] == nullptr) return;
    heard_[process] = {.sent = heartbeat->sent, .at = links_[process]->last_heard()};
    if (heartbeat->heard == 0) send_heartbeat(process);  // so that the clocks are compared soon
    return;
  }
  if (!leader_) return;
  if (std::holds_alternative<Connected>(message)) return note_connected(process);
  const bool is_own = process == options_.own;
  std::optional<LinkCheck> broken;
  if (const auto* const check = std::get_if<LinkCheck>(&message)) {
    if (check->kind == LinkCheck::Kind::Broken) broken = *check;
    if (check->kind == LinkCheck::Kind::Asks && check->process < asked_about_.size())
      asked_about_[check->process] = steady_clock::now();
  }
  const Leader::Fault fault = leader_->receive(process, std::move(message), steady_clock::now());
  if (fault && is_own) return handlers_.own_failed(*fault);
  if (fault) return lose(process, Kind::ProcessGone, "it sent a message that is not valid: " + *fault);
  if (broken) note_broken(process, *broken);
  lose_left();
  send_outgoing();
}

void LeaderService::lose_left() {
  while (const auto left = leader_->next_left()) {
    if (left->process == options_.own)
      leader_->gone(left->process, Kind::ProcessGone, left->why);
    else
      lose(left->process, Kind::ProcessGone, left->why, left->in_good_order);
  }
}

void LeaderService::lose(std::uint16_t process, Kind kind, const std::string& text, bool has_left) {
  const Link link = std::exchange(links_[process], nullptr);
  if (link == nullptr) return;
  link->close();
  broken_links_.remove(process);
  const std::string whole = name(process) + " is gone: " + text;
  cox::log::write(LogSubsystem::Collectives, LogLevel::Warn, [&] { return whole; });
  leader_->gone(process, kind, text);
  lose_left();
  send_outgoing();
  announce_connected();
  if (is_welcomed_)  // it may be connecting to the process
    successors_.front().link->send(Gone{.process = process, .kind = kind, .text = whole});
  if (handlers_.lost) handlers_.lost(process, kind, whole);
  if (handlers_.expelled && !has_left) handlers_.expelled(process, facts_[process].restart);
}

void LeaderService::note_broken(std::uint16_t process, const LinkCheck& check) {
  if (!leader_->is_present(check.process) || facts_[check.process].restart != check.restart) return;
  broken_links_.add(process, check.process, steady_clock::now());
}

// A link also ends because its process does, which becomes known soon. And processes find in different heartbeats that
// their links to another one deliver nothing. The decision waits until all of these links have been reported, and the
// reports read: a process that is held up does not read. After a short interruption there is time enough to read them;
// if each counted, as it does for `running_since`, short heartbeats could postpone the decision for ever.
void LeaderService::choose_leaving(Time now) {
  const Time last = std::exchange(last_heartbeats_, now);
  if (now - last > std::max<std::chrono::nanoseconds>(2 * options_.heartbeat, interruption)) uninterrupted_since_ = now;
  const Time until = now - broken_within - 3 * options_.heartbeat;
  if (uninterrupted_since_ > until) return;
  for (const BrokenLinks::Leaving& each : broken_links_.take_leaving(until, options_.own)) {
    std::string text = "it has no connection to ";
    for (std::size_t i = 0; i < each.others.size(); ++i) text += (i == 0 ? "" : ", ") + name(each.others[i]);
    if (const Link& link = links_[each.process])
      link->send(Gone{.process = each.process, .text = name(each.process) + " is gone: " + text});
    lose(each.process, Kind::ProcessGone, text);
  }
}

// First to the other processes: this one may block when it gets a release, until a rank has submitted.
void LeaderService::send_outgoing() {
  std::vector<Outgoing> outgoing;
  for (leader_->take_outgoing(outgoing); !outgoing.empty(); leader_->take_outgoing(outgoing)) {
    for (const Outgoing& each : outgoing)
      if (each.process != options_.own && links_[each.process]) links_[each.process]->send(each.message);
    for (Outgoing& each : outgoing)
      if (each.process == options_.own) handlers_.to_own(std::move(each.message));
  }
  arm_timer();
}

void LeaderService::arm_timer() {
  const auto deadline = leader_->next_deadline();
  if (!deadline) return;
  if (timer_.expiry() == *deadline) return;
  timer_.expires_at(*deadline);
  timer_.async_wait([this](const error_code& failed) {
    if (failed) return;
    leader_->expire(steady_clock::now());
    timer_.expires_at(Time::max());
    send_outgoing();
  });
}

void LeaderService::send_heartbeat(std::uint16_t process) {
  const Time now = steady_clock::now();
  Heartbeat heartbeat{.sent = nanoseconds_of(now)};
  if (const Heard& last = heard_[process]; last.sent != 0) {
    heartbeat.heard = last.sent;
    heartbeat.held = nanoseconds_of(now) - nanoseconds_of(last.at);
  }
  links_[process]->send(heartbeat);
}

// The deadline is that of each process: see world.timeout.
void LeaderService::send_awaited() {
  std::string text = is_complete() ? names_of_unconnected() : names_of_missing();
  if (text.empty()) return;
  text += is_complete() ? " did not connect to all processes" : " did not join the world";
  for (const Link& link : links_)
    if (link != nullptr) link->send(Awaited{.text = text});
}

void LeaderService::send_heartbeats(Time now, Time running_since) {
  if (!are_all_connected_) send_awaited();
  if (!leader_) return;
  const bool own_leaves = options_.own && !leader_->is_present(*options_.own);  // it waits until all others have left
  for (std::uint16_t process = 0; process < links_.size(); ++process) {
    const Link link = links_[process];
    if (link == nullptr) continue;
    send_heartbeat(process);
    const Time heard = std::max(link->last_heard(), running_since);
    // Another process may wait for its data, although the leader's state of that operation has ended.
    const bool is_asked_about = asked_about_[process] > now - options_.silence;
    const bool is_awaited =
        leader_->awaits(process) || is_asked_about || is_welcomed_ || !are_all_connected_ || own_leaves;
    if (silences_[process].is_too_long(name(process), heard, is_awaited, options_.silence, now))
      lose(process, Kind::ProcessSilent,
           fmt::format("it has been silent for {:.1f} s (setting world.silence)",
                       std::chrono::duration<double>(now - link->last_heard()).count()));
  }
  choose_leaving(now);
}

std::string LeaderService::describe(Time now) const {
  const auto devices_of = [](const ProcessFacts& facts) {
    std::string text;
    for (const DeviceId device : facts.devices) text += " " + device.to_string();
    return text.empty() ? std::string(" no devices") : text;
  };
  if (!leader_) {
    std::string text = fmt::format("a world of {} processes, of which {} have joined\n", facts_.size(), present());
    for (std::uint16_t process = 0; process < facts_.size(); ++process)
      text += name(process) + (facts_[process].host.empty() ? ": has not joined" : ":" + devices_of(facts_[process])) +
              "\n";
    return text;
  }
  const LeaderReport report = leader_->report();
  std::string text = fmt::format("a world of {} processes, {} operations of several processes released\n",
                                 facts_.size(), report.released);
  for (std::uint16_t process = 0; process < facts_.size(); ++process) {
    const LeaderReport::Process& each = report.processes[process];
    text += name(process) + ":" + devices_of(each.facts);
    if (each.facts.restart != 0) text += fmt::format(", restart {}", each.facts.restart);
    if (!each.is_present)
      text += ", is gone";
    else if (const Link& link = links_[process])
      text += fmt::format(", heard {:.1f} s ago", std::chrono::duration<double>(now - link->last_heard()).count());
    if (each.in_flight != 0) text += fmt::format(", {} released operations in flight", each.in_flight);
    if (each.is_awaited) text += ", others wait for it";
    text += "\n";
  }
  for (const LeaderReport::Operation& operation : report.operations) {
    text += operation.name;
    if (!operation.waits_for.empty()) text += " waits for " + operation.waits_for;
    text += ": ";
    for (std::size_t i = 0; i < operation.missing.size(); ++i)
      text += (i == 0 ? "" : ", ") + name(operation.missing[i]);
    text += operation.is_behind             ? " must first complete earlier ones"
            : operation.missing.size() == 1 ? " has not submitted it"
            : operation.missing.empty()     ? "about to be released"
                                            : " have not submitted it";
    const double left = std::chrono::duration<double>(operation.deadline - now).count();
    text += left > 0 ? fmt::format(", overdue in {:.1f} s\n", left) : ", overdue\n";
  }
  return text;
}

void LeaderService::close() noexcept {
  acceptor_.close();
  for (Link& link : links_)
    if (const Link closed = std::exchange(link, nullptr)) closed->close();
  for (const Successor& each : successors_) each.link->close();
}

}  // namespace cox::detail::world
