#include <coxswain/collectives/world/world_session.hpp>

#include <coxswain/collectives/nccl/nccl_communicator.hpp>
#include <coxswain/collectives/watch/deadline_watch.hpp>
#include <coxswain/device_handle/base/fork.hpp>
#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>
#include <coxswain/runtime/communication/world_process.hpp>
#include <coxswain/runtime/error/log.hpp>
#include <coxswain/runtime/telemetry/world_member.hpp>

#include <boost/asio/post.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <source_location>
#include <span>
#include <system_error>
#include <utility>

namespace cox::detail::world {
namespace {

using Kind = CollectiveError::Kind;
using boost::system::error_code;
using std::chrono::steady_clock;

constexpr std::chrono::milliseconds last_data_after{500};
constexpr std::chrono::seconds gone_within{2};
constexpr std::chrono::seconds marks_noted_within{10};
constexpr std::chrono::milliseconds verdict_within{100};

double seconds(std::chrono::nanoseconds time) noexcept { return std::chrono::duration<double>(time).count(); }

}  // namespace

WorldSession::WorldSession(SessionOptions options, Sequencer& sequencer)
    : options_(std::move(options)),
      own_(options_.place.process),
      sequencer_(sequencer),
      follower_(
          sequencer, [this](std::span<Message> messages) { send_to_leader(messages); },
          [this] { is_out_of_memory_ = true; }),
      facts_(options_.place.processes),
      leads_(own_ == 0 && options_.place.rendezvous.kind != Rendezvous::Kind::Leader),
      exchange_(
          options_.place.processes, [this](std::uint16_t process) { return name_of_process(process); },
          [this](std::uint16_t process, const std::string& why) { data_link_ended(process, why); }),
      marks_([this](Message message) { send_to_leader(std::move(message)); }),
      has_connected_(options_.place.processes),
      max_ahead_(options_.max_ahead),
      why_gone_(options_.place.processes),
      has_data_ended_(options_.place.processes),
      stalls_(options_.place.processes),
      is_gone_(options_.place.processes),
      is_missing_(options_.place.processes),
      polling_([this](Time) {
        DeadlineWatch<NcclCommunicator>::of_process().for_each([](NcclCommunicator& nccl) { nccl.poll(); });
        sequencer_.report_completed();
        return std::optional<Time>();
      }) {}

WorldSession::~WorldSession() { leave(steady_clock::now()); }

void WorldSession::send_to_leader(std::span<Message> messages) noexcept {
  try {
    if (!leads_) return messages.size() == 1 ? to_leader_->send(messages.front()) : to_leader_->send_later(messages);
    const std::lock_guard lock(mutex_);
    const bool are_first = own_messages_.empty();
    own_messages_.insert(own_messages_.end(), std::move_iterator(messages.begin()), std::move_iterator(messages.end()));
    if (are_first) boost::asio::post(io_, [this] { drain_own(); });
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
  for (Message& message : messages) service_->receive_own(std::move(message));
}

void WorldSession::note_lost(std::uint16_t process, Kind kind, const std::string& text) {
  {
    const std::lock_guard lock(mutex_);
    is_gone_[process] = true;
    is_missing_[process] = true;
  }
  changed_.notify_all();
  lose_device_work(process, kind, text);
  lose_data(process, kind, text);
}

// NCCL does not notice that a process is gone: its kernels would wait for that process.
void WorldSession::lose_device_work(std::uint16_t process, Kind kind, const std::string& text) {
  NcclCommunicator::lose_process(process, collective_error(kind, text));
}

// What a process has sent before it ended may still arrive: its connection ends after that. So this waits for it,
// unless the process is silent.
void WorldSession::lose_data(std::uint16_t process, Kind kind, const std::string& text) {
  const std::exception_ptr why = collective_error(kind, text);
  why_gone_[process] = why;
  if (kind == Kind::ProcessSilent || has_data_ended_[process] || !exchange_.has(process))
    return exchange_.lose(process, why);
  const auto timer = std::make_shared<boost::asio::steady_timer>(io_, last_data_after);
  timer->async_wait([this, process, why, timer, restart = facts_[process].restart](const error_code&) {
    if (facts_[process].restart == restart) exchange_.lose(process, why);  // else it has a successor
  });
}

void WorldSession::handle(Message message) {
  const auto* const heartbeat = std::get_if<Heartbeat>(&message);
  spin_.note(heartbeat != nullptr);
  if (heartbeat != nullptr) return note_heartbeat(*heartbeat);
  if (const auto* const gone = std::get_if<Gone>(&message)) {
    if (leads_ || gone->process >= facts_.size()) return;  // service_ calls note_lost() in the leader itself
    if (gone->process == own_) return lose_world(gone->text);
    return note_lost(gone->process, gone->kind, gone->text);
  }
  if (auto* const joined = std::get_if<Joined>(&message)) {
    if (joined->process < facts_.size()) note_joined(joined->process, std::move(joined->facts));
    return;
  }
  if (const auto* const check = std::get_if<LinkCheck>(&message)) return answer(*check);
  // To a successor that was faster than the first processes.
  if (std::holds_alternative<Connected>(message) || std::holds_alternative<Awaited>(message)) return;
  if (marks_.handle(message)) return;
  if (!follower_.handle(message))
    lose_world("the leader has released an operation that this process has not submitted");
}

// A successor has connected to all processes before the leader announces it. What was released before has ended for the
// operations that need its predecessor.
void WorldSession::note_joined(std::uint16_t process, ProcessFacts facts) {
  if (process == own_) {
    {
      const std::lock_guard lock(mutex_);
      is_announced_ = true;
    }
    return changed_.notify_all();
  }
  const auto found = of_successors_.find(process);
  if (found == of_successors_.end() || found->second.restart < facts.restart)
    return lose_world(fmt::format("the successor of {} has not connected", name_of_process(process)));
  if (found->second.restart > facts.restart) return;  // it has ended, as the leader will say, and has one itself
  const auto link = of_successors_.extract(found);
  {
    const std::lock_guard lock(facts_mutex_);
    facts_[process] = std::move(facts);
  }
  spin_.set_processes(facts_);
  why_gone_[process] = nullptr;
  stalls_[process] = {};
  has_data_ended_[process] = false;
  exchange_.replace(process, link.mapped().link, sequencer_.broken_epochs(static_cast<std::uint16_t>(process + 1)));
  {
    const std::lock_guard lock(mutex_);
    is_gone_[process] = false;
    is_missing_[process] = false;
  }
  changed_.notify_all();
}

// The end of a data link does not say whether that process has ended, has lost the world, or whether the world has
// ended. The leader, or the end of the connection to it, says so in a moment: wait for that.
//
// If both live, one of them must leave, as the leader decides. The other end may not have noticed that the link has
// ended.
void WorldSession::data_link_ended(std::uint16_t process, const std::string& why) {
  {
    const std::lock_guard lock(mutex_);
    is_missing_[process] = true;
  }
  has_data_ended_[process] = true;
  if (why_gone_[process]) return exchange_.lose(process, why_gone_[process]);
  const std::exception_ptr ended =
      collective_error(Kind::ProcessGone, "the connection to " + name_of_process(process) + " has ended: " + why);
  const auto verdict = std::make_shared<boost::asio::steady_timer>(io_, verdict_within);
  verdict->async_wait([this, process, ended, verdict, restart = facts_[process].restart](const error_code&) {
    if (facts_[process].restart == restart) exchange_.lose(process, ended);  // else it has a successor
  });
  report_broken(process);
}

void WorldSession::report_broken(std::uint16_t process) {
  send_to_leader(
      LinkCheck{.kind = LinkCheck::Kind::Broken, .process = process, .restart = facts_[process].restart, .bytes = 0});
}

void WorldSession::note_heartbeat(const Heartbeat& heartbeat) {
  if (leads_) return;
  leader_sent_ = heartbeat.sent;
  leader_heard_ = to_leader_->last_heard();
  if (heartbeat.heard == 0) return;
  const ClockOffset::Measured measured = leader_clock_.add(
      static_cast<std::int64_t>(heartbeat.heard), static_cast<std::int64_t>(heartbeat.held),
      static_cast<std::int64_t>(heartbeat.sent), static_cast<std::int64_t>(nanoseconds_of(leader_heard_)));
  set_world_clock(measured.offset, measured.error);
}

// After a pause of this process, the others may have spoken without being heard.
WorldSession::Time WorldSession::begin_heartbeats() {
  const Time now = steady_clock::now();
  if (now - std::exchange(last_heartbeat_, now) > 2 * options_.heartbeat) running_since_ = now;
  return now;
}

void WorldSession::send_heartbeats() {
  const Time now = begin_heartbeats();
  if (is_out_of_memory_) lose_world("this process is out of memory");
  if (service_ && !is_lost()) service_->send_heartbeats(now, running_since_);
  const std::vector<bool> awaited = exchange_.awaited();
  if (!leads_ && !is_lost()) {
    Heartbeat heartbeat{.sent = nanoseconds_of(steady_clock::now())};
    if (leader_sent_ != 0) {
      heartbeat.heard = leader_sent_;
      heartbeat.held = heartbeat.sent - nanoseconds_of(leader_heard_);
    }
    to_leader_->send(heartbeat);
    const Time heard = std::max(to_leader_->last_heard(), running_since_);
    // A process that leads gives inputs, too.
    const bool is_peer = options_.place.rendezvous.kind != Rendezvous::Kind::Leader;
    const bool is_awaited = sequencer_.awaits_leader() || marks_.is_pending() || (is_peer && awaited[0]) || has_left();
    if (leader_silence_.is_too_long(name_of_leader(), heard, is_awaited, options_.silence, now))
      lose_world(fmt::format("{} has been silent for {:.1f} s (setting world.silence)", name_of_leader(),
                             seconds(now - to_leader_->last_heard())));
  }
  if (!is_lost()) check_links(awaited, now);
  poll_completed();
  heartbeat_timer_.expires_after(options_.heartbeat);
  heartbeat_timer_.async_wait([this](const error_code& failed) {
    if (failed) return;
    spin_.note(true);
    send_heartbeats();
  });
}

// Of links that deliver nothing, though both processes reach the leader.
void WorldSession::check_links(const std::vector<bool>& awaited, Time now) {
  for (std::uint16_t process = 0; process < stalls_.size(); ++process) {
    const auto link = exchange_.link(process);
    if (link == nullptr) continue;
    const bool is_awaited = link->is_reading() && awaited[process];
    const Stall::Next next =
        stalls_[process].check(is_awaited, link->received_bytes(), options_.silence, running_since_, now);
    if (next == Stall::Next::Ask)
      send_to_leader(LinkCheck{.kind = LinkCheck::Kind::Asks,
                               .process = process,
                               .restart = facts_[process].restart,
                               .bytes = link->received_bytes()});
    if (next == Stall::Next::IsBroken)
      end_broken(process, *link,
                 "what " + name_of_process(process) + " has sent does not arrive (setting world.silence)");
  }
}

void WorldSession::end_broken(std::uint16_t process, DataLink& link, const std::string& why) {
  cox::log::write(LogSubsystem::Collectives, LogLevel::Warn,
                  [&] { return "the connection to " + name_of_process(process) + " is broken: " + why; });
  link.end(why);  // calls data_link_ended()
}

void WorldSession::answer(const LinkCheck& check) {
  if (check.process >= stalls_.size() || check.restart != options_.place.restart) return;
  if (has_data_ended_[check.process]) {
    // The other end has not noticed it yet.
    if (check.kind == LinkCheck::Kind::Asks && !why_gone_[check.process]) report_broken(check.process);
    return;
  }
  const auto link = exchange_.link(check.process);
  if (link == nullptr) return;
  switch (check.kind) {
    case LinkCheck::Kind::Asks:
      if (link->sent_bytes() > check.bytes)
        send_to_leader(LinkCheck{.kind = LinkCheck::Kind::Sent,
                                 .process = check.process,
                                 .restart = facts_[check.process].restart,
                                 .bytes = link->sent_bytes()});
      break;
    case LinkCheck::Kind::Sent: stalls_[check.process].note_sent(check.bytes, steady_clock::now()); break;
    case LinkCheck::Kind::Broken:
      end_broken(check.process, *link, name_of_process(check.process) + " reports that");
      break;
  }
}

// NCCL's communicators are polled on a thread of its own, since that may take long, and heartbeats must not.
void WorldSession::poll_completed() {
  bool has_any = false;
  DeadlineWatch<NcclCommunicator>::of_process().for_each([&](NcclCommunicator&) { has_any = true; });
  if (!has_any) return sequencer_.report_completed();
  try {
    polling_.watch(steady_clock::now());
  } catch (const std::system_error&) {  // no thread: the next heartbeat tries again
  }
}

// Processes that have joined earlier wait for this one already.
void WorldSession::send_heartbeats_while_joining() {
  const Time now = begin_heartbeats();
  if (service_) service_->send_heartbeats(now, running_since_);
  if (!leads_) to_leader_->send(Heartbeat{});
  heartbeat_timer_.expires_after(options_.heartbeat);
  heartbeat_timer_.async_wait([this](const error_code& failed) {
    if (!failed && !is_running_) send_heartbeats_while_joining();
  });
}

bool WorldSession::is_lost() {
  const std::lock_guard lock(mutex_);
  return is_lost_;
}

bool WorldSession::has_left() {
  const std::lock_guard lock(mutex_);
  return is_left_;
}

void WorldSession::lose_world(const std::string& why) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(is_lost_, true)) return;
  }
  const std::exception_ptr lost = collective_error(Kind::WorldGone, why);
  sequencer_.lose_world(lost);
  try {
    if (!leads_) send_to_leader(Bye{.text = why});
  } catch (...) {  // no memory: the leader finds that the connection has ended
  }
  exchange_.lose_all(lost);
  lose_device_world(lost, false);
  close_links();
  changed_.notify_all();
}

// `only_busy`: the process leaves in good order, so that communicators without operations in flight are destroyed later
// with their devices, as NCCL prefers. Without the world no process answers marks. The other processes accept
// operations that complete until they know that this process is gone: NCCL is aborted, and streams that wait for marks
// continue, only after that.
void WorldSession::lose_device_world(const std::exception_ptr& why, bool only_busy) noexcept {
  try {
    NcclCommunicator::lose_world(why, only_busy);
  } catch (...) {  // no memory: they are overdue after collectives.timeout
  }
  if (only_busy) return;
  try {
    const auto timer = std::make_shared<boost::asio::steady_timer>(io_, given_up_after());
    timer->async_wait([this, timer](const error_code&) { marks_.lose_all(); });
  } catch (...) {  // no memory
    marks_.lose_all();
  }
}

std::chrono::nanoseconds WorldSession::given_up_after() const noexcept { return gone_within + 3 * options_.heartbeat; }

void WorldSession::close_links() noexcept {
  if (service_) service_->close();
  if (to_leader_) to_leader_->close();
  for (const auto& [process, successor] : of_successors_) successor.link->close();
}

void WorldSession::leave(Time deadline) noexcept {
  if (is_forked()) return;  // the parent process is in the world, and its thread is not in this process
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(is_left_, true)) return;
  }
  if (thread_.joinable()) {
    const std::exception_ptr left = collective_error(Kind::WorldGone, "this process has left its world");
    // The leader must have been sent what this process has completed before it gets the Bye.
    DeadlineWatch<NcclCommunicator>::of_process().for_each([](NcclCommunicator& nccl) { nccl.poll(); });
    sequencer_.report_completed();
    sequencer_.lose_world(left);
    lose_device_world(left, true);
    marks_.wait_until_noted(std::min(
        deadline, steady_clock::now() + std::max<std::chrono::nanoseconds>(given_up_after(), marks_noted_within)));
    send_to_leader(Bye{.text = ""});
    std::unique_lock lock(mutex_);
    // The leader waits for the others. They wait until the leader ends the connection: what they have completed is
    // complete in all other processes.
    const bool waits = steady_clock::now() < deadline;
    const bool has_ended = changed_.wait_until(lock, deadline, [this] {
      return is_lost_ ||
             (leads_ && static_cast<std::size_t>(std::ranges::count(is_gone_, true)) == is_gone_.size() - 1);
    });
    lock.unlock();
    if (waits && !has_ended)
      cox::log::write(LogSubsystem::Collectives, LogLevel::Warn, [&] {
        return std::string("this process leaves its world, although other processes have not ") +
               (leads_ ? "left it" : "completed their operations with it") + " in time";
      });
    io_.stop();
    thread_.join();
    polling_.stop();
  }
  exchange_.lose_all(collective_error(Kind::WorldGone, "this process has left its world"));
  marks_.lose_all();
  close_links();
}

bool WorldSession::wait_until_complete(Time deadline) {
  std::unique_lock lock(mutex_);
  const auto is_over = [this] {
    return is_lost_ || is_left_ || std::ranges::find(is_missing_, true) == is_missing_.end();
  };
  const bool ended = changed_.wait_until(lock, deadline, is_over);
  if (is_lost_ || is_left_)
    throw CollectiveError(Kind::WorldGone, "this process has lost its world, or has left it", std::source_location());
  return ended;
}

std::vector<ProcessFacts> WorldSession::processes() const {
  const std::lock_guard lock(facts_mutex_);
  return facts_;
}

std::string WorldSession::name_of_process(std::uint16_t process) const {
  const std::lock_guard lock(facts_mutex_);
  return world::name_of_process(process, facts_[process]);
}

std::string WorldSession::name_of_leader() const {
  if (options_.place.rendezvous.kind == Rendezvous::Kind::Leader) return "the leader of the world";
  return name_of_process(0) + ", which leads the world,";
}

}  // namespace cox::detail::world
