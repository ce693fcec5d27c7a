#include <coxswain/tools/cox/supervisor/descendants.hpp>

#include <dirent.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <fstream>
#include <memory>
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

// 0 if the process has gone.
pid_t parent_of(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string line;
  if (!std::getline(file, line)) return 0;
  const std::size_t name_end = line.rfind(')');  // the name may contain anything; then come " S PARENT"
  if (name_end == std::string::npos || name_end + 4 >= line.size()) return 0;
  pid_t parent = 0;
  std::from_chars(line.data() + name_end + 4, line.data() + line.size(), parent);
  return parent;
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
    if (const pid_t process = process_of(entry->d_name); process != 0 && parent_of(process) == self)
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

void reap_children(std::initializer_list<pid_t> others) {
  siginfo_t ended{};
  // WNOWAIT: the others stay as they are.
  while (waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 && ended.si_pid != 0 &&
         std::ranges::find(others, ended.si_pid) == others.end())
    static_cast<void>(waitpid(ended.si_pid, nullptr, WNOHANG));
}

bool was_started_with(pid_t process, std::string_view variable, std::string_view value) {
  std::ifstream file("/proc/" + std::to_string(process) + "/environ", std::ios::binary);
  const std::string entry = std::string(variable) + "=" + std::string(value);
  for (std::string next; std::getline(file, next, '\0');)
    if (next == entry) return true;
  return false;
}

}  // namespace cox::tools
