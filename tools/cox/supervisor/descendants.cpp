#include <coxswain/tools/cox/supervisor/descendants.hpp>

#include <dirent.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>

namespace cox::tools {
namespace {

struct CloseFolder {
  void operator()(DIR* folder) const noexcept { closedir(folder); }
};

// The process id in the name of a folder of /proc; 0: another name.
pid_t process_of(std::string_view name) {
  pid_t process = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), process);
  return error == std::errc() && end == name.data() + name.size() ? process : 0;
}

// The fields of /proc/PID/stat after the name, which may contain anything; all zeros if the process has gone.
struct ProcessState {
  char letter = 0;  // R, S, D, Z, ...
  pid_t parent = 0;
  std::uint64_t flags = 0;  // PF_... of the kernel
};

ProcessState state_of(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string line;
  if (!std::getline(file, line)) return {};
  const std::size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return {};
  std::istringstream rest(line.substr(name_end + 1));
  ProcessState state;
  std::int64_t ignored = 0;  // process group, session, terminal, and the process group of that
  rest >> state.letter >> state.parent >> ignored >> ignored >> ignored >> ignored >> state.flags;
  return state;
}

}  // namespace

void adopt_orphans() {
  if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0)
    throw std::system_error(errno, std::generic_category(), "PR_SET_CHILD_SUBREAPER");
}

std::vector<pid_t> children_of_this_process() {
  const std::unique_ptr<DIR, CloseFolder> folder(opendir("/proc"));
  if (folder == nullptr) throw std::system_error(errno, std::generic_category(), "/proc");
  const pid_t self = getpid();
  std::vector<pid_t> children;
  while (const dirent* const entry = readdir(folder.get()))
    if (const pid_t process = process_of(entry->d_name); process != 0 && state_of(process).parent == self)
      children.push_back(process);
  return children;
}

bool kill_children(const std::function<bool(pid_t)>& is_spared) {
  bool none = true;
  for (const pid_t child : children_of_this_process()) {
    if (is_spared(child)) continue;
    static_cast<void>(kill(child, SIGKILL));
    if (waitpid(child, nullptr, WNOHANG) != child) none = false;
  }
  // The children of one that has been reaped now are found now, too.
  return none && std::ranges::all_of(children_of_this_process(), is_spared);
}

bool end_children(const std::function<bool(pid_t)>& is_spared, const std::string& program, std::ostream& err,
                  const std::function<bool()>& wait) {
  constexpr std::chrono::seconds reported_after{5};
  const auto begin = std::chrono::steady_clock::now();
  for (bool reported = false; !kill_children(is_spared);) {
    if (!reported && std::chrono::steady_clock::now() - begin > reported_after) {
      reported = true;
      err << "cox run: waits for processes of '" << program
          << "' that have been killed and have not ended: they may still write its kept memory\n"
          << std::flush;
    }
    if (!wait()) return false;
  }
  return true;
}

void reap_children(const std::vector<pid_t>& others) {
  siginfo_t ended{};
  // WNOWAIT: the others stay as they are.
  while (waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 && ended.si_pid != 0 &&
         std::ranges::find(others, ended.si_pid) == others.end())
    static_cast<void>(waitpid(ended.si_pid, nullptr, WNOHANG));
}

bool is_ending(pid_t process) {
  constexpr std::uint64_t exiting = 0x4;  // PF_EXITING, which a thread has before its files are closed
  const ProcessState state = state_of(process);
  return state.letter == 'Z' || state.letter == 'X' || (state.flags & exiting) != 0;
}

bool was_started_with(pid_t process, std::string_view variable, std::string_view value) {
  std::ifstream file("/proc/" + std::to_string(process) + "/environ", std::ios::binary);
  const std::string entry = std::string(variable) + "=" + std::string(value);
  for (std::string next; std::getline(file, next, '\0');)
    if (next == entry) return true;
  return false;
}

}  // namespace cox::tools
