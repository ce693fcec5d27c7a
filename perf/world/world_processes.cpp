#include <coxswain/perf/world/world_processes.hpp>

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

namespace cox::perf {
namespace {

constexpr const char* number_variable = "COX_WORLD_PROCESS";
constexpr unsigned longest_sample = 30;  // seconds

// A new folder, which is removed when this ends.
class StoreFolder {
 public:
  StoreFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "cox-perf-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot create a folder for the processes to meet");
    path_ = name;
  }
  StoreFolder(const StoreFolder&) = delete;
  StoreFolder& operator=(const StoreFolder&) = delete;
  ~StoreFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

 private:
  std::filesystem::path path_;
};

void set(const char* name, const std::string& value) { ::setenv(name, value.c_str(), 1); }

void set_place(std::uint16_t process) {
  set(number_variable, std::to_string(process));
  set("COX_WORLD_LOCAL_PROCESS", std::to_string(process));
}

std::vector<std::string> own_words() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::vector<std::string> words;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\0', begin);
    words.push_back(text.substr(begin, end - begin));
    begin = end == std::string::npos ? text.size() : end + 1;
  }
  return words;
}

// This program again, with the variables as they are now. What it prints is dropped.
pid_t start_again() {
  std::vector<std::string> words = own_words();
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t pid = -1;
  const int error = posix_spawn(&pid, "/proc/self/exe", &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw std::runtime_error("cannot start a process of the world");
  return pid;
}

// The other processes; killed if they still run when this ends.
class OtherProcesses {
 public:
  OtherProcesses() = default;
  OtherProcesses(const OtherProcesses&) = delete;
  OtherProcesses& operator=(const OtherProcesses&) = delete;
  ~OtherProcesses() {
    for (const pid_t pid : pids_) {
      ::kill(pid, SIGKILL);
      static_cast<void>(::waitpid(pid, nullptr, 0));
    }
  }
  void add(pid_t pid) { pids_.push_back(pid); }
  void wait() {
    while (!pids_.empty()) {
      const pid_t pid = pids_.back();
      pids_.pop_back();
      int status = 0;
      if (::waitpid(pid, &status, 0) != pid || status != 0)
        throw std::runtime_error("a process of the world has failed");
    }
  }

 private:
  std::vector<pid_t> pids_;
};

}  // namespace

Sample sample_of_world(std::uint16_t processes, std::uint16_t own, const std::function<Sample(PlaceOfSample)>& body) {
  ::alarm(longest_sample);  // NCCL waits for other processes without a limit
  if (const char* const number = std::getenv(number_variable); number != nullptr) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    return body({.process = static_cast<std::uint16_t>(std::atoi(number)), .processes = processes});
  }
  if (processes == 1) return body({});
  const StoreFolder folder;
  set("COX_WORLD", "file:" + folder.path().string());
  set("COX_WORLD_RUN", "perf");
  set("COX_WORLD_PROCESSES", std::to_string(processes));
  set("COX_WORLD_LOCAL_PROCESSES", std::to_string(processes));
  OtherProcesses others;
  for (std::uint16_t process = 0; process < processes; ++process) {
    set_place(process);
    if (process != own) others.add(start_again());
  }
  set_place(own);
  Sample sample = body({.process = own, .processes = processes});
  others.wait();
  return sample;
}

}  // namespace cox::perf
