#include <coxswain/tools/cox/supervisor/world_supervisor.hpp>

#include <coxswain/collectives/discovery/rendezvous.hpp>
#include <coxswain/collectives/store/world_token.hpp>
#include <coxswain/runtime/config/duration.hpp>
#include <coxswain/tools/cox/byte_text.hpp>
#include <coxswain/tools/cox/exit_code.hpp>
#include <coxswain/tools/cox/nodes/node_message.hpp>
#include <coxswain/tools/cox/supervisor/descendants.hpp>
#include <coxswain/tools/cox/supervisor/fault_summary.hpp>
#include <coxswain/tools/cox/supervisor/supervisor.hpp>
#include <coxswain/tools/cox/supervisor/wait_readable.hpp>

#include <unistd.h>
#include <algorithm>
#include <csignal>
#include <memory>
#include <system_error>
#include <utility>

namespace cox::tools {

WorldSupervisor::WorldSupervisor(std::vector<std::string> program, WorldSupervisorOptions options, std::ostream& err)
    : options_(std::move(options)),
      err_(err),
      policy_(options_.limits),
      name_("cox-run-" + std::to_string(getpid()) + "-" + detail::to_hexadecimal(detail::random_token())),
      local_(std::move(program), options_.processes, options_.kept_limit, err_),
      exit_(options_.kill_after) {
  if (options_.nodes.nodes > 1) nodes_.emplace(options_.nodes, options_.processes, err_);
  try {
    control_.emplace();
  } catch (const std::system_error& error) {
    err_ << "cox run: --status and --reload are not available: " << error.what() << "\n" << std::flush;
  }
}

int WorldSupervisor::run() {
  const int code = supervise();
  if (nodes_) nodes_->end(code, end_text_);
  return code;
}

int WorldSupervisor::supervise() try {
  for (;;) {
    if (const auto code = wait_for_nodes()) return *code;
    const ProgramEnd end = try_run();
    const bool reloads = std::exchange(reload_requested_, false);
    const bool restarts =
        reloads ||
        (end.exit_code() != 0 && (!failure_ || options_.causes.contain(end) || (end.signal != 0 && holds_memory())));
    if (exit_.is_made() || !restarts) return end.exit_code();
    const bool progresses = finish_run() && holds_memory();
    if (exit_.is_made()) return end.exit_code();
    if (reloads || progresses) {
      report_end((reloads ? "reload" : "restart " + std::to_string(restarts_ + 1) + " of all processes") + " with " +
                 short_byte_count(kept_bytes()) + " of kept memory");
      ++restarts_;
      continue;
    }
    const Clock::time_point now = Clock::now();
    const auto delay = policy_.restart(now, now - began_);
    const std::string limit = options_.limits.to_string();
    if (!delay) {
      report_end("not restarted: the limit is " + limit);
      return end.exit_code();
    }
    report_end("restart " + std::to_string(restarts_ + 1) + " of all processes in " + format_duration(*delay) +
               " (limit " + limit + ")");
    ++restarts_;
    if (const auto signal = back_off(*delay)) return ProgramEnd{.code = 0, .signal = *signal}.exit_code();
  }
} catch (const std::exception& error) {
  end_text_ = "node 0: cannot start '" + local_.program() + "': " + error.what();
  return report_not_started(local_.program(), error, err_);
}

std::optional<int> WorldSupervisor::wait_for_nodes() {
  if (!nodes_ || nodes_->are_present()) return std::nullopt;
  const std::string longest = format_duration(options_.nodes.join_within);
  err_ << "cox run: waits for " << nodes_->missing() << ", at most " << longest << "\n" << std::flush;
  const Clock::time_point until = Clock::now() + options_.nodes.join_within;
  while (!nodes_->are_present()) {
    if (const auto signal = take_exit_signal()) return ProgramEnd{.code = 0, .signal = *signal}.exit_code();
    answer_requests(nullptr);
    const Clock::time_point now = Clock::now();
    if (now >= until) {
      end_text_ = "the world ends, since these have not joined within " + longest + ": " + nodes_->missing();
      err_ << "cox run: " << end_text_ << "\n" << std::flush;
      return static_cast<int>(ExitCode::WorldGone);
    }
    wait(until - now);
  }
  return std::nullopt;
}

// A program that cannot be started, for instance while its file is being replaced, is tried again if memory is held for
// it; there is no failure_ then.
ProgramEnd WorldSupervisor::try_run() try {
  failure_.reset();
  reload_requested_ = false;  // of a request before the start
  began_ = Clock::now();
  failure_ = run_processes();
  return failure_ ? failure_->end : ProgramEnd{};
} catch (const std::exception& error) {
  leader_.reset();
  if (!holds_memory()) throw;
  const int code = report_not_started(local_.program(), error, err_);
  if (nodes_) nodes_->kill_run();
  while (nodes_ && !nodes_->have_ended() && continues(std::nullopt)) {
  }
  return {.code = code, .signal = 0};
}

std::optional<WorldRun::Failure> WorldSupervisor::run_processes() {
  const detail::WorldToken token = detail::random_token();
  leader_ = std::make_unique<WorldLeader>(
      WorldLeaderOptions{.processes = static_cast<std::uint16_t>(processes()),
                         .run = name_,
                         .token = token,
                         .host = nodes_ ? nodes_->host() : "127.0.0.1",
                         .expelled = [this](std::uint16_t process, std::uint32_t restart) {
                           expelled_.add({.number = process, .restart = restart});
                         }});
  local_.begin_run({.number = restarts_,
                    .leader = leader_->address(),
                    .token = token,
                    .name = name_,
                    .processes = processes(),
                    .last_fault = last_fault_});
  if (nodes_)
    nodes_->start({.restart = restarts_,
                   .leader_port = parse_rendezvous(leader_->address(), "the leader").port,
                   .token = token,
                   .run = name_,
                   .last_fault = last_fault_ ? text_of_report(*last_fault_, max_fault_report) : ""},
                  [this](std::size_t process) { return local_.report(process); });
  if (!started_again_.empty()) started_before_ += std::ranges::max(started_again_);
  started_again_.assign(options_.processes, 0);
  started_at_.assign(options_.processes, Clock::now());
  WorldRun world(local_.program(), options_.grace, err_, options_.successors ? successors() : WorldSuccessors{});
  start_processes(world);
  forward(world);  // signals that arrived before all processes had started
  while (world.tend()) {
    local_.keepers().serve();
    reap_children(world.ids());
    std::optional<std::chrono::nanoseconds> longest;
    if (world.due()) longest = *world.due() - Clock::now();
    wait(longest);
    if (nodes_) nodes_->require_started();
    note_expelled(world);
    forward(world);
    answer_requests(&world);
  }
  local_.keepers().serve();
  leader_.reset();
  last_fault_.reset();
  if (world.failure() && std::filesystem::exists(world.failure()->report)) last_fault_ = world.failure()->report;
  return world.failure();
}

void WorldSupervisor::start_processes(WorldRun& world) {
  for (std::size_t process = 0; process < options_.processes; ++process)
    world.add(start_process(process), local_.report(process));
  if (nodes_) nodes_->add_to(world);
}

std::unique_ptr<ChildProcess> WorldSupervisor::start_process(std::size_t process) {
  started_at_[process] = Clock::now();
  return local_.start(process, restart_of(process), !options_.successors);
}

void WorldSupervisor::note_expelled(WorldRun& world) {
  for (const ExpelledProcesses::Process& each : expelled_.take())
    if (each.number < options_.processes && each.restart == restart_of(each.number)) world.note_expelled(each.number);
}

WorldSuccessors WorldSupervisor::successors() {
  return {.delay = [this](std::size_t process, const ProgramEnd& end) -> std::optional<std::chrono::nanoseconds> {
            const bool is_cause = options_.causes.contain(end) || end.signal != 0;
            if (exit_.is_made() || reload_requested_ || !is_cause) return std::nullopt;
            const Clock::time_point now = Clock::now();
            return policy_.restart(now, now - started_at_[process]);
          },
          .start =
              [this](std::size_t process) {
                ++started_again_[process];
                return start_process(process);
              }};
}

std::vector<int> WorldSupervisor::descriptors() const {
  std::vector<int> all = local_.keepers().descriptors();
  all.push_back(signals_.descriptor());
  all.push_back(expelled_.descriptor());
  if (control_) all.push_back(control_->descriptor());
  return all;
}

void WorldSupervisor::wait(std::optional<std::chrono::nanoseconds> longest) {
  if (nodes_)
    nodes_->wait(descriptors(), longest);
  else
    wait_readable(descriptors(), longest);
}

std::size_t WorldSupervisor::processes() const noexcept { return nodes_ ? nodes_->processes() : options_.processes; }

bool WorldSupervisor::holds_memory() const noexcept {
  return local_.keepers().holds_memory() || (nodes_ && nodes_->hold_memory());
}

std::uint64_t WorldSupervisor::kept_bytes() const noexcept {
  return local_.keepers().bytes() + (nodes_ ? nodes_->kept_bytes() : 0);
}

void WorldSupervisor::forward(WorldRun& world) {
  while (const auto signal = signals_.take()) {
    if (*signal == SIGTSTP) stop(world);
    if (CaughtSignals::is_passed_on(*signal)) pass_on(world, *signal, 0);
  }
  while (const auto signal = nodes_ ? nodes_->take_signal() : std::nullopt)
    pass_on(world, signal->number, signal->node);
}

void WorldSupervisor::stop(WorldRun& world) {
  const ProcessRange others{.first = options_.processes, .count = processes() - options_.processes};
  world.send(SIGSTOP, others);
  signals_.stop();
  world.send(SIGCONT, others);
}

void WorldSupervisor::pass_on(WorldRun& world, int signal, std::uint16_t node) {
  if (CaughtSignals::requests_exit(signal)) {
    exit_.note(signal, Clock::now(), node);
    world.expect_end(*exit_.kill_at(), exit_.lateness());
    // A launcher sends it to all agents, but each process is to be sent it once.
    if (exit_signals_.try_emplace(signal, node).first->second != node) return;
  }
  world.send(signal);
}

std::optional<int> WorldSupervisor::take_exit_signal() {
  while (const auto signal = signals_.take()) {
    if (*signal == SIGTSTP) signals_.stop();
    if (CaughtSignals::requests_exit(*signal)) return *signal;
  }
  while (const auto signal = nodes_ ? nodes_->take_signal() : std::nullopt)
    if (CaughtSignals::requests_exit(signal->number)) return signal->number;
  return std::nullopt;
}

void WorldSupervisor::answer_requests(WorldRun* world) {
  if (!control_) return;
  control_->answer([&](std::string_view request) -> std::string {
    if (request == Supervisor::status_request) return status(world);
    if (request == world_request) return leader_ ? leader_->describe() : "the processes wait for their start\n";
    if (request != Supervisor::reload_request) return "unknown request\n";
    return reload(world);
  });
}

std::string WorldSupervisor::reload(WorldRun* world) {
  if (world == nullptr && nodes_ && !nodes_->are_present()) return "the processes wait for " + nodes_->missing() + "\n";
  reload_requested_ = true;
  if (world == nullptr) return "the processes are started now\n";
  if (!exit_.is_made())
    world->expect_end(Clock::now() + options_.kill_after,
                      "has not ended within " + format_duration(options_.kill_after) + " of the reload");
  world->send(SIGTERM);
  return "all processes have been sent SIGTERM; they are started again when all have ended\n";
}

std::string WorldSupervisor::status(const WorldRun* world) const {
  std::string text = "program: " + local_.program() + ", " + std::to_string(processes()) + " processes";
  if (nodes_) text += " on " + std::to_string(options_.nodes.nodes) + " nodes";
  if (world == nullptr) {
    text += ", wait for their " + std::string(nodes_ && began_ == Clock::time_point() ? "start\n" : "restart\n");
  } else {
    const auto ran = std::chrono::floor<std::chrono::seconds>(Clock::now() - began_);
    std::string ids;
    for (const pid_t id : world->ids()) ids += (ids.empty() ? "" : ", ") + std::to_string(id);
    text += " (" + ids + (nodes_ ? " on this one" : "") + "), run for " + format_duration(ran) + "\n";
  }
  text += "restarts: " + std::to_string(restarts_) + "\n";
  if (nodes_) text += nodes_->to_string();
  const WorldKeepers& keepers = local_.keepers();
  const std::string kept = keepers.to_string();
  if (kept.empty()) return text + "kept memory: none\n";
  return text + "kept memory: " + short_byte_count(keepers.bytes()) + " of at most " +
         short_byte_count(keepers.most_bytes()) + "\n" + kept;
}

bool WorldSupervisor::continues(std::optional<std::chrono::nanoseconds> longest) {
  wait(longest);
  if (const auto signal = take_exit_signal()) exit_.note(*signal, Clock::now());
  answer_requests(nullptr);
  return !exit_.is_made();
}

bool WorldSupervisor::finish_run() {
  bool gpu_memory_is_lost = nodes_ && nodes_->gpu_memory_is_lost();
  for (std::size_t process = 0; process < options_.processes; ++process)
    gpu_memory_is_lost = gpu_memory_is_lost || memory_is_lost(local_.report(process));
  if (nodes_) nodes_->begin_finish(gpu_memory_is_lost);
  if (!local_.end_leftovers([&] { return continues(std::chrono::milliseconds(10)); })) return false;
  WorldKeepers& keepers = local_.keepers();
  const bool keeps = keepers.was_used() || keepers.holds_memory();
  const bool progresses = keepers.end_run();
  if (gpu_memory_is_lost) keepers.lose_gpu_memory();
  if (!nodes_) return progresses;
  while (!nodes_->finish())
    if (!continues(std::nullopt)) return false;
  const RemoteNodes::Finish others = *nodes_->finish();
  return (keeps || others.keeps) && (progresses || !keeps) && others.progresses;
}

std::optional<int> WorldSupervisor::back_off(std::chrono::nanoseconds delay) {
  const Clock::time_point until = Clock::now() + delay;
  for (;;) {
    if (const auto signal = take_exit_signal()) return signal;
    answer_requests(nullptr);
    const Clock::time_point now = Clock::now();
    if (now >= until || std::exchange(reload_requested_, false)) return std::nullopt;
    wait(until - now);
  }
}

void WorldSupervisor::report_end(const std::string& what_next) {
  err_ << "cox run: ";
  if (failure_) {
    const auto cause = fault_summary(failure_->report);
    err_ << "the first failure of " << processes() << " processes of '" << local_.program() << "': process "
         << failure_->process << " " << failure_->end.to_string() << (cause ? ": " + *cause : "") << "; ";
  }
  err_ << what_next << "\n" << std::flush;
}

}  // namespace cox::tools
