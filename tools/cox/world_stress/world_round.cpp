#include <coxswain/tools/cox/world_stress/world_round.hpp>

#include <coxswain/collectives/leader/world_message.hpp>
#include <coxswain/collectives/store/folder_store.hpp>
#include <coxswain/tools/cox/supervisor/child_process.hpp>
#include <coxswain/tools/cox/supervisor/private_folder.hpp>
#include <coxswain/tools/cox/world_stress/clock_watch.hpp>
#include <coxswain/tools/cox/world_stress/link_proxy.hpp>
#include <coxswain/tools/cox/world_stress/world_member.hpp>

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <sstream>
#include <utility>

namespace cox::stress {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr auto round_at_most = 25s;
constexpr auto continued_at_most = 10s;
constexpr auto notified_within = 1s;  // L16: of the end of a process
constexpr auto join_at_most = 2s;     // world.timeout of the processes
constexpr auto most_held_up = 100ms;
constexpr std::string_view run_name = "stress";
constexpr std::string_view leader_key = "leader";
constexpr std::uint64_t lasting_loops = 1'000'000;  // until a process fails

bool contains(const std::vector<std::uint16_t>& processes, std::uint16_t process) {
  return std::ranges::find(processes, process) != processes.end();
}

/// A process of the round.
struct Process {
  std::unique_ptr<tools::ChildProcess> child;
  int descriptor = -1;  // readable when it has ended
  std::string report;
  std::optional<tools::ProgramEnd> end;
};

class WorldRound {
 public:
  WorldRound(const WorldStressOptions& options, const WorldFaultPlan& plan, const std::vector<std::string>& program)
      : options_(options), plan_(plan), lost_{plan.lost()} {
    if (plan.at().is_second) lost_.push_back(last());
    if (plan.fault == WorldFault::Slow) lost_.clear();
    for (std::uint16_t process = 0; process < options.processes; ++process) start(process, program);
  }
  WorldRound(const WorldRound&) = delete;
  WorldRound& operator=(const WorldRound&) = delete;
  ~WorldRound() {
    proxy_.reset();
    for (const Process& process : processes_) ::close(process.descriptor);
  }

  WorldRoundOutcome run() {
    connect();
    WorldRoundOutcome outcome;
    const bool stops = plan_.fault == WorldFault::Stop;
    const bool ended = wait_for_ends(Clock::now() + round_at_most, stops);
    {
      const std::lock_guard lock(mutex_);
      if (!triggered_at_ && plan_.fault != WorldFault::Slow) complain("the state was not reached");
    }
    if (!ended) complain("a process has not ended");
    if (stops && wrong_.empty()) {
      continued_at_ = Clock::now();
      proxy_->release_from(plan_.victim);
      processes_[plan_.victim].child->send(SIGCONT);
      if (!wait_for_ends(Clock::now() + continued_at_most, false))
        complain("the process that was stopped has not ended");
    }
    for (std::uint16_t process = 0; process < options_.processes && wrong_.empty(); ++process)
      check(process, outcome.notified);
    outcome.is_held_up = watch_.longest() > most_held_up;
    if (!wrong_.empty()) outcome.wrong = plan_.to_string() + ": " + wrong_ + reports();
    return outcome;
  }

 private:
  [[nodiscard]] std::uint16_t last() const { return static_cast<std::uint16_t>(options_.processes - 1); }
  [[nodiscard]] std::string folder_of(std::uint16_t process) const {
    return folder_.path() / ("store" + std::to_string(process));
  }
  void complain(const std::string& what) {
    if (wrong_.empty()) wrong_ = what;
  }

  // Each process has a store of its own, in which the proxy is the leader.
  void start(std::uint16_t process, const std::vector<std::string>& program) {
    const bool ends = plan_.fault == WorldFault::Slow || plan_.at().scenario == Scenario::Leaving;
    const bool is_slow = plan_.at().scenario == Scenario::Overdue;
    const WorldMember member{.scenario = plan_.at().scenario,
                             .loops = !ends     ? lasting_loops
                                      : is_slow ? 1U
                                                : 5U,
                             .lost = lost_,
                             .flaw = options_.flaw,
                             .report = folder_.path() / ("report" + std::to_string(process))};
    std::vector<std::string> arguments = program;
    arguments.push_back(member.to_string());
    const std::string number = std::to_string(process);
    const std::string count = std::to_string(options_.processes);
    const auto milliseconds = [](std::chrono::milliseconds time) { return std::to_string(time.count()) + "ms"; };
    const tools::EnvironmentChanges changes{{"COX_WORLD", "file:" + folder_of(process)},
                                            {"COX_WORLD_PROCESS", number},
                                            {"COX_WORLD_PROCESSES", count},
                                            {"COX_WORLD_LOCAL_PROCESS", number},
                                            {"COX_WORLD_LOCAL_PROCESSES", count},
                                            {"COX_WORLD_RUN", std::string(run_name)},
                                            {"COX_WORLD_RESTART", std::nullopt},
                                            {"COX_WORLD_TOKEN", std::nullopt},
                                            {"COX_WORLD_TIMEOUT", milliseconds(join_at_most)},
                                            {"COX_WORLD_HEARTBEAT", milliseconds(options_.heartbeat)},
                                            {"COX_WORLD_SILENCE", milliseconds(options_.silence)},
                                            {"COX_COLLECTIVES_TIMEOUT", is_slow ? "500ms" : "20s"}};
    Process& started = processes_.emplace_back();
    started.report = member.report;
    started.child = std::make_unique<tools::ChildProcess>(arguments, changes);
    started.descriptor = static_cast<int>(::syscall(SYS_pidfd_open, started.child->id(), 0));
  }

  [[nodiscard]] cox::detail::FolderStore store(std::uint16_t of, std::uint16_t as) const {
    return cox::detail::FolderStore(
        {.folder = folder_of(of), .process = as, .processes = options_.processes, .run = std::string(run_name)});
  }

  // Finds the leader for the other processes, and has them find the proxy.
  void connect() {
    const auto deadline = Clock::now() + 20s;
    std::vector<std::byte> value;
    for (std::uint16_t process = 1; process < options_.processes; ++process) {
      cox::detail::FolderStore as_follower = store(0, process);
      value = as_follower.get(leader_key, deadline);
      as_follower.close(deadline);
    }
    std::string text;
    for (const std::byte byte : value) text += static_cast<char>(byte);
    std::istringstream words(text);
    std::string host;
    std::uint16_t port = 0;
    std::string token;
    words >> host >> port >> token;
    proxy_ = std::make_unique<LinkProxy>(host, port, options_.processes,
                                         [this](const LinkProxy::Passing& passing) { see(passing); });
    if (plan_.fault == WorldFault::Slow) proxy_->delay(plan_.victim, plan_.delay);
    for (std::uint16_t process = 1; process < options_.processes; ++process) {
      const std::string its = "127.0.0.1 " + std::to_string(proxy_->port_for(process)) + " " + token;
      store(process, 0).set(leader_key, std::as_bytes(std::span(its)), deadline);
    }
  }

  // The thread of the proxy.
  void see(const LinkProxy::Passing& passing) {
    const std::lock_guard lock(mutex_);
    if (plan_.fault == WorldFault::Slow || triggered_at_) return;
    if (plan_.at().is_second && !first_is_killed_) {
      constexpr std::uint64_t some = 9;
      const bool is_inputs = passing.type == detail::world::Message(detail::world::Inputs{}).index();
      if (!is_inputs || passing.from != last() || ++first_count_ < some) return;
      first_is_killed_ = true;
      processes_[last()].child->send(SIGKILL);
      proxy_->discard_from(last());
      return;
    }
    if (passing.type != plan_.at().type || passing.from != plan_.victim || passing.link.is_data != plan_.at().is_data)
      return;
    const std::uint16_t to = passing.from == passing.link.lower ? passing.link.higher : passing.link.lower;
    if (plan_.fault == WorldFault::Cut && to != plan_.peer) return;
    if (++count_ < plan_.count + plan_.at().skipped) return;
    triggered_at_ = Clock::now();
    fail(passing.link);
  }

  void fail(const LinkProxy::Link& link) {
    switch (plan_.fault) {
      case WorldFault::Kill: processes_[plan_.victim].child->send(SIGKILL); return proxy_->discard_from(plan_.victim);
      case WorldFault::Stop: processes_[plan_.victim].child->send(SIGSTOP); return proxy_->hold_from(plan_.victim);
      case WorldFault::Slow: return;
      case WorldFault::Cut:
        switch (plan_.cut) {
          case Cut::Ends: return proxy_->end(link);
          case Cut::EndsForLower: return proxy_->end_towards(link, link.lower);
          case Cut::EndsForHigher: return proxy_->end_towards(link, link.higher);
          case Cut::Silent: return proxy_->silence(link);
        }
    }
  }

  // Returns whether all have ended; `but_victim`: but the one that is stopped.
  bool wait_for_ends(Clock::time_point deadline, bool but_victim) {
    for (;;) {
      std::vector<pollfd> waited;
      for (std::uint16_t process = 0; process < options_.processes; ++process) {
        Process& its = processes_[process];
        const std::lock_guard lock(mutex_);
        if (!its.end) its.end = its.child->end();
        const bool is_stopped = but_victim && process == plan_.victim && triggered_at_;
        if (!its.end && !is_stopped) waited.push_back({.fd = its.descriptor, .events = POLLIN, .revents = 0});
      }
      if (waited.empty()) return true;
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
      if (left.count() <= 0) return false;
      // The fault may happen to a process that is waited for.
      static_cast<void>(::poll(waited.data(), waited.size(), static_cast<int>(std::min(left, 100ms).count())));
    }
  }

  // What the process has reported must be what it has to be told.
  void check(std::uint16_t process, std::vector<std::chrono::nanoseconds>& notified) {
    const Process& its = processes_[process];
    const auto lines = read_report(its.report);
    const auto line = [&](std::string_view what) {
      const auto found = std::ranges::find(lines, what, &MemberLine::what);
      return found == lines.end() ? nullptr : &*found;
    };
    const std::string name = "process " + std::to_string(process);
    const bool was_killed =
        (plan_.fault == WorldFault::Kill && process == plan_.victim) || (plan_.at().is_second && process == last());
    if (was_killed) return;
    if (its.end->exit_code() != 0) return complain(name + " " + its.end->to_string());
    const bool may_end = plan_.fault == WorldFault::Slow || plan_.at().scenario == Scenario::Leaving;
    if (may_end && line("done") != nullptr) return;
    if (plan_.fault == WorldFault::Slow) return complain(name + " has not done all its operations");
    if (const MemberLine* const not_joined = line("not joined")) {
      if (!is_joining()) return complain(name + " has not joined: " + not_joined->text);
      if (process == plan_.victim && plan_.fault == WorldFault::Stop) return;
      if (not_joined->when > *triggered_at_ + join_at_most + notified_within)
        complain(name + " was notified late that the world does not start");
      // If it is silent, others may give up before this one does, and are gone, too.
      if (process == 0 && plan_.fault == WorldFault::Kill && !names(not_joined->text, lost_))
        complain(name + " was not told which process has failed: " + not_joined->text);
      return;
    }
    const MemberLine* const told = line("notified");
    if (told == nullptr) return complain(name + " was not notified");
    const bool is_stopped = plan_.fault == WorldFault::Stop && process == plan_.victim;
    const auto after = told->when - (is_stopped ? continued_at_ : *triggered_at_);
    if (const std::string why = objection(process, *told); !why.empty())
      return complain(name + " was told " + told->error + ", " + why + ": " + told->text);
    if (after > bound())
      return complain(name + " was notified after " +
                      std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(after).count()) +
                      " ms: " + told->text);
    if (!contains(lost_, process) && !is_joining()) notified.push_back(after);
    if (!all_joined()) return;  // those that have not can give up, so that there is no one to continue with
    if (const MemberLine* const rest = line("rest")) {
      if (rest->error != "none") complain(name + " cannot continue with the others: " + rest->text);
    } else if (const MemberLine* const again = line("again")) {
      if (again->error != "WorldGone" && again->error != "ProcessGone")
        complain(name + " must have lost the world, but: " + again->error + " " + again->text);
    } else {
      complain(name + " has not tried to continue");
    }
  }

  [[nodiscard]] bool all_joined() const {
    for (std::uint16_t process = 0; process < options_.processes; ++process) {
      const auto lines = read_report(processes_[process].report);
      if (contains(lost_, process)) continue;
      if (std::ranges::find(lines, "joined", &MemberLine::what) == lines.end()) return false;
    }
    return true;
  }
  [[nodiscard]] static bool names(const std::string& text, const std::vector<std::uint16_t>& any_of) {
    return std::ranges::any_of(any_of, [&](std::uint16_t process) {
      return text.find("process " + std::to_string(process)) != std::string::npos;
    });
  }

  // Processes send heartbeats as soon as they are connected to the leader.
  [[nodiscard]] bool is_joining() const {
    return plan_.at().is_joining || plan_.at().type == detail::world::Message(detail::world::Heartbeat{}).index();
  }
  [[nodiscard]] bool is_silent_data() const {
    return plan_.fault == WorldFault::Cut && plan_.cut == Cut::Silent && plan_.at().is_data;
  }
  // The leader does not hear the process, or the process does not hear the leader.
  [[nodiscard]] bool is_silent_process() const {
    return plan_.fault == WorldFault::Stop ||
           (plan_.fault == WorldFault::Cut && plan_.cut == Cut::Silent && !plan_.at().is_data);
  }
  // How long after the fault a process may be notified.
  [[nodiscard]] std::chrono::nanoseconds bound() const {
    if (is_joining()) return join_at_most + notified_within;
    if (is_silent_data()) return 3 * options_.silence / 2 + 4 * options_.heartbeat + notified_within;
    return is_silent_process() ? options_.silence + 3 * options_.heartbeat + notified_within
                               : std::chrono::nanoseconds(notified_within);
  }

  // Why the process must not be told that; empty: it must.
  [[nodiscard]] std::string objection(std::uint16_t process, const MemberLine& told) const {
    const auto is = [&](std::string_view kind) { return told.error == kind; };
    // A process that has joined before the others loses the world with them.
    if (is_joining() && (is("WorldGone") || is("ProcessGone") || is("ProcessSilent"))) return "";
    if (contains(lost_, process)) {
      const bool is_of_others = plan_.fault == WorldFault::Stop && is("ProcessSilent");  // what they have called it
      return is("WorldGone") || is("ProcessGone") || is_of_others ? "" : "not WorldGone or ProcessGone";
    }
    if (plan_.at().is_second) return is("WorldGone") || is("ProcessGone") ? "" : "not ProcessGone";
    if (plan_.lost() == 0) return is("WorldGone") || is("ProcessGone") ? "" : "not WorldGone";
    const bool is_silent = is_silent_process();
    if (!is(is_silent ? "ProcessSilent" : "ProcessGone")) return is_silent ? "not ProcessSilent" : "not ProcessGone";
    // Of a cut connection for data, either process can be the first to report it.
    std::vector<std::uint16_t> causes = lost_;
    if (plan_.fault == WorldFault::Cut && plan_.at().is_data) causes = {plan_.victim, plan_.peer};
    return names(told.text, causes) ? "" : "without the name of the process";
  }

  [[nodiscard]] std::string reports() const {
    std::string text;
    for (std::uint16_t process = 0; process < options_.processes; ++process) {
      text += "\n  process " + std::to_string(process) + ":";
      for (const MemberLine& line : read_report(processes_[process].report)) {
        text += " " + line.what;
        if (triggered_at_)
          text += " at " +
                  std::to_string(
                      std::chrono::duration_cast<std::chrono::milliseconds>(line.when - *triggered_at_).count()) +
                  " ms";
        text += line.error == "none" ? ";" : " (" + line.error + ": " + line.text + ");";
      }
      std::ifstream errors(processes_[process].report + ".errors");
      const std::string printed{std::istreambuf_iterator<char>(errors), {}};
      if (!printed.empty()) text += " it printed: " + printed.substr(0, 500);
    }
    return text;
  }

  const WorldStressOptions& options_;
  const WorldFaultPlan& plan_;
  std::vector<std::uint16_t> lost_;
  const tools::PrivateFolder folder_;
  const ClockWatch watch_;
  std::vector<Process> processes_;
  std::unique_ptr<LinkProxy> proxy_;
  Clock::time_point continued_at_{};
  std::string wrong_;
  std::mutex mutex_;
  std::optional<Clock::time_point> triggered_at_;  // guarded by mutex_, as all below
  std::uint64_t count_ = 0;                        // messages of the type
  std::uint64_t first_count_ = 0;
  bool first_is_killed_ = false;
};

}  // namespace

WorldRoundOutcome run_world_round(const WorldStressOptions& options, const WorldFaultPlan& plan,
                                  const std::vector<std::string>& program) {
  return WorldRound(options, plan, program).run();
}

}  // namespace cox::stress
