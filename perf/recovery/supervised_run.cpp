#include <coxswain/perf/recovery/supervised_run.hpp>

#include <coxswain/runtime/base/byte_count.hpp>

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <stdexcept>
#include <system_error>

namespace cox::perf {
namespace {

constexpr std::chrono::seconds before_kill{5};

std::vector<std::string> words_of(const RecoveryOptions& options, const Journal& journal) {
  std::vector<std::string> words{options.cox, "run",           "--restarts", "100000", "--backoff",
                                 "1ms",       "--backoff-max", "1ms",        "--on",   "signal"};
  if (options.standby) words.emplace_back("--standby");
  for (const std::string& word :
       {std::string("--"), std::filesystem::read_symlink("/proc/self/exe").string(), std::string("--worker"),
        journal.descriptors(), std::string("--devices"), options.devices_text, std::string("--bytes"),
        exact_byte_count(options.bytes), std::string("--step-bytes"), exact_byte_count(options.pass_bytes),
        std::string("--passes"), std::to_string(options.passes), std::string("--mode"),
        std::string(options.mode == KeptMode::Double ? "double" : "in_place")})
    words.push_back(word);
  return words;
}

std::string end_text(int status) {
  return WIFSIGNALED(status) ? "was ended by signal " + std::to_string(WTERMSIG(status))
                             : "has ended with code " + std::to_string(WEXITSTATUS(status));
}

}  // namespace

SupervisedRun::SupervisedRun(const RecoveryOptions& options) : options_(options) {
  log_ = options.log.empty() ? memfd_create("log", MFD_CLOEXEC)
                             : open(options.log.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (log_ < 0) throw std::system_error(errno, std::generic_category(), "the log " + options.log);
  cox_ = start(words_of(options, journal_));
}

SupervisedRun::~SupervisedRun() {
  if (reload_ > 0) {
    kill(reload_, SIGKILL);
    waitpid(reload_, nullptr, 0);
  }
  if (!status_) {
    kill(cox_, SIGTERM);
    const Clock::time_point until = Clock::now() + before_kill;
    int status = 0;
    pid_t ended = 0;
    while ((ended = waitpid(cox_, &status, WNOHANG)) == 0 && Clock::now() < until)
      static_cast<void>(poll(nullptr, 0, 10));
    if (ended == 0) {
      kill(cox_, SIGKILL);
      waitpid(cox_, nullptr, 0);
    }
  }
  for (const auto& process : processes_)
    if (process->descriptor >= 0) close(process->descriptor);
  close(log_);
}

pid_t SupervisedRun::start(const std::vector<std::string>& words) const {
  std::vector<std::string> copies = words;
  std::vector<char*> pointers;
  pointers.reserve(copies.size() + 1);
  for (std::string& word : copies) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) throw std::system_error(errno, std::generic_category(), "fork");
  if (child > 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(127);
  dup2(log_, STDOUT_FILENO);
  dup2(log_, STDERR_FILENO);
  execvp(pointers[0], pointers.data());
  dprintf(STDERR_FILENO, "cannot start '%s': error %d\n", pointers[0], errno);
  _exit(127);
}

WorkerProcess& SupervisedRun::wait_for(Moment moment, const WorkerProcess* before) {
  static constexpr std::array names{
      "start",          "open its devices",   "load its kernels",   "open its communicator", "open its set",
      "map its memory", "compare its memory", "restore its memory", "finish a step",         "fail"};
  WorkerProcess* found = nullptr;
  wait(
      [&] {
        for (const auto& each : processes_)
          if (each.get() != before && each->descriptor >= 0 && each->reached(moment)) found = each.get();
        return found != nullptr;
      },
      std::string("for a process to ") + names[static_cast<std::size_t>(moment)]);
  return *found;
}

void SupervisedRun::wait_for_end_of(const WorkerProcess& process) {
  wait([&] { return process.descriptor < 0; }, "for the end of process " + std::to_string(process.id));
}

void SupervisedRun::pause(std::chrono::nanoseconds time) {
  const Clock::time_point until = Clock::now() + time;
  wait([&] { return Clock::now() >= until; }, "");
}

void SupervisedRun::reload() {
  wait([&] { return reload_ < 0; }, "for the last `cox run --reload`");
  reload_ = start({options_.cox, "run", "--reload", std::to_string(cox_)});
}

void SupervisedRun::wait_for_success() {
  const Clock::time_point until = Clock::now() + options_.timeout;
  for (reap(); !status_; reap()) {
    if (Clock::now() >= until) fail("waited too long for the end of `cox run`");
    follow(std::chrono::milliseconds(10));
  }
  if (!WIFEXITED(*status_) || WEXITSTATUS(*status_) != 0) fail("`cox run` " + end_text(*status_));
}

void SupervisedRun::wait(const std::function<bool()>& done, const std::string& what) {
  const Clock::time_point until = Clock::now() + options_.timeout;
  while (!done()) {
    reap();
    if (status_) fail("`cox run` " + end_text(*status_));
    if (reload_failed_) fail("`cox run --reload` has failed");
    if (Clock::now() >= until) fail("waited too long " + what);
    follow(std::chrono::milliseconds(1));
  }
}

// Waits for reports and ends of processes, and takes them.
void SupervisedRun::follow(std::chrono::nanoseconds longest) {
  std::vector<pollfd> all{{.fd = journal_.descriptor(), .events = POLLIN, .revents = 0}};
  std::vector<WorkerProcess*> living;
  for (const auto& each : processes_) {
    if (each->descriptor < 0) continue;
    all.push_back({.fd = each->descriptor, .events = POLLIN, .revents = 0});
    living.push_back(each.get());
  }
  const timespec time{.tv_sec = 0, .tv_nsec = longest.count()};
  if (ppoll(all.data(), all.size(), &time, nullptr) <= 0) return;
  const std::chrono::nanoseconds now = monotonic_time();
  if (all[0].revents != 0) take_reports();
  for (std::size_t i = 0; i < living.size(); ++i) {
    if (all[i + 1].revents == 0) continue;
    close(living[i]->descriptor);
    living[i]->descriptor = -1;
    living[i]->ended = now;
  }
}

void SupervisedRun::take_reports() {
  for (Report report; journal_.take(report);) {
    WorkerProcess& process = process_of(static_cast<pid_t>(report.process));
    process.times[static_cast<std::size_t>(report.moment)] = report.time;
    if (report.moment != Moment::Kept) continue;
    process.state = report.state;
    process.lost = report.lost;
  }
}

WorkerProcess& SupervisedRun::process_of(pid_t id) {
  // The newest with this id: the ids of ended processes are used again.
  const auto found = std::find_if(processes_.rbegin(), processes_.rend(), [&](const auto& each) {
    return each->id == id && (each->descriptor >= 0 || monotonic_time() - each->ended < std::chrono::seconds(1));
  });
  if (found != processes_.rend()) return **found;
  processes_.push_back(std::make_unique<WorkerProcess>());
  processes_.back()->id = id;
  processes_.back()->descriptor = static_cast<int>(syscall(SYS_pidfd_open, id, 0));
  if (processes_.back()->descriptor < 0) {
    if (errno != ESRCH) throw std::system_error(errno, std::generic_category(), "pidfd_open");
    processes_.back()->ended = monotonic_time();
  }
  return *processes_.back();
}

void SupervisedRun::reap() {
  int status = 0;
  if (!status_ && waitpid(cox_, &status, WNOHANG) == cox_) status_ = status;
  if (reload_ > 0 && waitpid(reload_, &status, WNOHANG) == reload_) {
    reload_ = -1;
    reload_failed_ = !WIFEXITED(status) || WEXITSTATUS(status) != 0;
  }
}

void SupervisedRun::fail(const std::string& why) const { throw std::runtime_error(why + "\n" + end_of_log()); }

std::string SupervisedRun::end_of_log() const {
  constexpr off_t most = 6000;
  struct stat found{};
  if (fstat(log_, &found) != 0) return {};
  const off_t size = found.st_size;
  const off_t from = std::max<off_t>(size - most, 0);
  std::string text(static_cast<std::size_t>(size - from), '\0');
  const ssize_t length = pread(log_, text.data(), text.size(), from);
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(length, 0)));
  return text;
}

}  // namespace cox::perf
