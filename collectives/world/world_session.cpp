#include <coxswain/collectives/world/world_session.hpp>

#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>
#include <coxswain/runtime/communication/world_process.hpp>
#include <coxswain/runtime/error/log.hpp>

#include <boost/asio/post.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <source_location>
#include <utility>

namespace cox::detail::world {
namespace {

using Kind = CollectiveError::Kind;
using boost::system::error_code;
using std::chrono::steady_clock;

constexpr std::chrono::seconds report_silence_after{5};
constexpr std::chrono::milliseconds last_data_after{500};
constexpr std::chrono::seconds gone_within{2};
constexpr std::chrono::milliseconds verdict_within{100};

double seconds(std::chrono::nanoseconds time) noexcept { return std::chrono::duration<double>(time).count(); }

}  // namespace

WorldSession::WorldSession(SessionOptions options, Sequencer& sequencer)
    : options_(std::move(options)),
      own_(options_.place.process),
      sequencer_(sequencer),
      follower_(
          sequencer, [this](Message message) { send_to_leader(std::move(message)); },
          [this] { is_out_of_memory_ = true; }),
      facts_(options_.place.processes),
      links_(options_.place.processes),
      exchange_(
          options_.place.processes, [this](std::uint16_t process) { return name_of_process(process); },
          [this](std::uint16_t process, const std::string& why) { data_link_ended(process, why); }),
      max_ahead_(options_.max_ahead),
      is_silent_(options_.place.processes),
      is_gone_(options_.place.processes),
      why_gone_(options_.place.processes),
      has_data_ended_(options_.place.processes),
      awaited_since_(options_.place.processes, Time::max()) {}

WorldSession::~WorldSession() { leave(steady_clock::now()); }

void WorldSession::send_to_leader(Message message) noexcept {
  try {
    if (own_ != 0) {
      to_leader_->send(message);
      return;
    }
    const std::lock_guard lock(mutex_);
    own_messages_.push_back(std::move(message));
    if (own_messages_.size() == 1) boost::asio::post(io_, [this] { drain_own(); });
  } catch (const MalformedMessage& error) {
    send_failed(error.what());
  } catch (...) {
    // The others would wait for the message: send_heartbeats() ends the world for this process.
    is_out_of_memory_ = true;
  }
}

// The message is too large, and the others would wait for it.
void WorldSession::send_failed(const char* why) noexcept {
  try {
    boost::asio::post(io_, [this, text = std::string(why)] { lose_world(text); });
  } catch (...) {
    is_out_of_memory_ = true;
  }
}

void WorldSession::drain_own() {
  std::vector<Message> messages;
  {
    const std::lock_guard lock(mutex_);
    messages.swap(own_messages_);
  }
  for (Message& message : messages) handle_as_leader(own_, std::move(message));
}

void WorldSession::handle_as_leader(std::uint16_t process, Message message) {
  if (std::holds_alternative<Heartbeat>(message) || !leader_) return;
  if (const auto* const bye = std::get_if<Bye>(&message)) {
    if (process != own_) return lose_process(process, Kind::ProcessGone, "it has left the world");
    leader_->gone(own_, Kind::ProcessGone, "it has left the world");
    return send_outgoing();
  }
  const Leader::Fault fault = leader_->receive(process, std::move(message), steady_clock::now());
  if (fault && process == own_) return lose_world(*fault);
  if (fault) return lose_process(process, Kind::ProcessGone, "it sent a message that is not valid: " + *fault);
  send_outgoing();
}

void WorldSession::lose_process(std::uint16_t process, Kind kind, const std::string& text) {
  const Link link = std::exchange(links_[process], nullptr);
  if (link == nullptr) return;
  link->close();
  const std::string whole = name_of_process(process) + " is gone: " + text;
  is_gone_[process] = true;
  cox::log::write(LogSubsystem::Collectives, LogLevel::Warn, [&] { return whole; });
  leader_->gone(process, kind, text);
  send_outgoing();
  lose_data(process, kind, whole);
  {
    const std::lock_guard lock(mutex_);
    --present_;
  }
  changed_.notify_all();
}

// What a process has sent before it ended may still arrive: its connection ends after that. So this waits for it,
// unless the process is silent.
void WorldSession::lose_data(std::uint16_t process, Kind kind, const std::string& text) {
  const std::exception_ptr why = collective_error(kind, text);
  why_gone_[process] = why;
  if (kind == Kind::ProcessSilent || has_data_ended_[process] || !exchange_.has(process))
    return exchange_.lose(process, why);
  const auto timer = std::make_shared<boost::asio::steady_timer>(io_, last_data_after);
  timer->async_wait([this, process, why, timer](const error_code&) { exchange_.lose(process, why); });
}

void WorldSession::send_outgoing() {
  std::vector<Outgoing> outgoing;
  for (leader_->take_outgoing(outgoing); !outgoing.empty(); leader_->take_outgoing(outgoing))
    for (Outgoing& each : outgoing) {
      if (each.process == own_)
        handle(std::move(each.message));
      else if (links_[each.process])
        links_[each.process]->send(each.message);
    }
  arm_leader_timer();
}

void WorldSession::arm_leader_timer() {
  const auto deadline = leader_->next_deadline();
  if (!deadline) return;
  if (leader_timer_.expiry() == *deadline) return;
  leader_timer_.expires_at(*deadline);
  leader_timer_.async_wait([this](const error_code& failed) {
    if (failed) return;
    leader_->expire(steady_clock::now());
    leader_timer_.expires_at(Time::max());
    send_outgoing();
  });
}

void WorldSession::handle(Message message) {
  if (const auto* const gone = std::get_if<Gone>(&message)) {
    if (own_ == 0 || gone->process >= is_gone_.size()) return;
    is_gone_[gone->process] = true;
    return lose_data(gone->process, gone->kind, gone->text);
  }
  if (!follower_.handle(message))
    lose_world("the leader has released an operation that this process has not submitted");
}

// The end of a data link does not say whether that process has ended, has lost the world, or whether the world has
// ended. The leader, or the end of the connection to it, says so in a moment: wait for that.
//
// A process that cannot reach another one must not stay: their operations would fail again and again. Of the two, the
// one with the higher number leaves, unless the other one turns out to be gone.
void WorldSession::data_link_ended(std::uint16_t process, const std::string& why) {
  has_data_ended_[process] = true;
  if (why_gone_[process]) return exchange_.lose(process, why_gone_[process]);
  const std::exception_ptr ended =
      collective_error(Kind::ProcessGone, "the connection to " + name_of_process(process) + " has ended: " + why);
  const auto verdict = std::make_shared<boost::asio::steady_timer>(io_, verdict_within);
  verdict->async_wait([this, process, ended, verdict](const error_code&) { exchange_.lose(process, ended); });
  if (own_ < process) return;
  const auto timer = std::make_shared<boost::asio::steady_timer>(io_, gone_within);
  timer->async_wait([this, process, why, timer](const error_code&) {
    if (!is_gone_[process]) lose_world("the connection to " + name_of_process(process) + " has ended: " + why);
  });
}

void WorldSession::send_heartbeats() {
  const Time now = steady_clock::now();
  // After a pause of this process, the others may have spoken without being heard.
  if (now - last_heartbeat_ > 2 * options_.heartbeat) running_since_ = now;
  last_heartbeat_ = now;
  if (is_out_of_memory_) lose_world("this process is out of memory");
  for (std::uint16_t process = 0; own_ == 0 && process < links_.size(); ++process) {
    const Link link = links_[process];
    if (link == nullptr) continue;
    link->send(Heartbeat{});
    if (check_silence(process, *link, leader_->awaits(process), now))
      lose_process(
          process, Kind::ProcessSilent,
          fmt::format("it has been silent for {:.1f} s (setting world.silence)", seconds(now - link->last_heard())));
  }
  if (own_ != 0 && !is_lost()) {
    to_leader_->send(Heartbeat{});
    if (check_silence(0, *to_leader_, sequencer_.awaits_leader() || exchange_.awaits(0), now))
      lose_world(fmt::format("{}, which leads the world, has been silent for {:.1f} s (setting world.silence)",
                             name_of_process(0), seconds(now - to_leader_->last_heard())));
  }
  sequencer_.report_completed();
  heartbeat_timer_.expires_after(options_.heartbeat);
  heartbeat_timer_.async_wait([this](const error_code& failed) {
    if (!failed) send_heartbeats();
  });
}

// Processes that have joined earlier wait for this one already.
void WorldSession::send_heartbeats_while_joining() {
  for (const Link& link : links_)
    if (link) link->send(Heartbeat{});
  if (own_ != 0) to_leader_->send(Heartbeat{});
  heartbeat_timer_.expires_after(options_.heartbeat);
  heartbeat_timer_.async_wait([this](const error_code& failed) {
    if (!failed && !is_running_) send_heartbeats_while_joining();
  });
}

// Reports the silence of a process. Returns whether it has lasted for longer than world.silence while others waited.
bool WorldSession::check_silence(std::uint16_t process, const ControlLink& link, bool is_awaited, Time now) {
  const Time heard = std::max(link.last_heard(), running_since_);
  if (now - heard >= report_silence_after && !is_silent_[process])
    cox::log::write(LogSubsystem::Collectives, LogLevel::Warn, [&] {
      return fmt::format("{} has been silent for {:.1f} s", name_of_process(process), seconds(now - heard));
    });
  is_silent_[process] = now - heard >= report_silence_after;
  Time& since = awaited_since_[process];
  since = is_awaited ? std::min(since, now) : Time::max();
  return is_awaited && now - std::max(heard, since) >= options_.silence;
}

bool WorldSession::is_lost() {
  const std::lock_guard lock(mutex_);
  return is_lost_;
}

void WorldSession::lose_world(const std::string& why) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(is_lost_, true)) return;
  }
  const std::exception_ptr lost = collective_error(Kind::WorldGone, why);
  sequencer_.lose_world(lost);
  exchange_.lose_all(lost);
  close_links();
  changed_.notify_all();
}

void WorldSession::close_links() noexcept {
  for (Link& link : links_)
    if (const Link closed = std::exchange(link, nullptr)) closed->close();
  if (to_leader_) to_leader_->close();
}

void WorldSession::leave(Time deadline) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(is_left_, true)) return;
  }
  if (thread_.joinable()) {
    sequencer_.lose_world(collective_error(Kind::WorldGone, "this process has left its world"));
    send_to_leader(Bye{.text = ""});
    std::unique_lock lock(mutex_);
    // Process 0 waits for the others; they wait until the leader has heard that they leave.
    changed_.wait_until(lock, deadline, [this] { return is_lost_ || (own_ == 0 && present_ == 0); });
    lock.unlock();
    io_.stop();
    thread_.join();
  }
  exchange_.lose_all(collective_error(Kind::WorldGone, "this process has left its world"));
  close_links();
}

std::string WorldSession::name_of_process(std::uint16_t process) const {
  const ProcessFacts& facts = facts_[process];
  if (facts.host.empty()) return fmt::format("process {}", process);
  return fmt::format("process {} ({}, pid {})", process, facts.host, facts.pid);
}

}  // namespace cox::detail::world
