// A program for `cox run --standby` that records its processes:
//   PROGRAM FILE end KILLS      waits for its standby and ends by SIGKILL, KILLS times; then ends with code 0
//   PROGRAM FILE kill           kills its standby, waits for the next one, and ends with code 0
//   PROGRAM FILE wait           runs until SIGTERM; a standby that has taken over ends with code 7
// Each process appends the lines "process PID PID-OF-A-CHILD COX_STANDBY COX_RESTART" before it opens its kept set, and
// "opened PID" afterwards. The child has no parent any more and lives on. The program ends with 3 if a child of an
// earlier run still lives, with 4 if its own child does not, and with 5 if the kept memory is not that of the last run.
// Without arguments it makes one run that ends by itself.
#include <coxswain/runtime/kept/kept_set.hpp>
#include <coxswain/servers/host/server/host_server.hpp>

#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace {

struct Process {
  pid_t id = 0;
  pid_t child = 0;
};

void note(const std::string& file, const std::string& line) { std::ofstream(file, std::ios::app) << line << std::endl; }

// The processes that have begun, the first one first.
std::vector<Process> processes(const std::string& file) {
  std::vector<Process> found;
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string kind;
    Process process;
    if (words >> kind >> process.id >> process.child && kind == "process") found.push_back(process);
  }
  return found;
}

bool lives(pid_t process) { return kill(process, 0) == 0 || errno != ESRCH; }

// A process whose parent has ended.
pid_t orphan() {
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) std::abort();
  const pid_t parent = fork();
  if (parent == 0) {
    const pid_t child = fork();
    if (child == 0) {
      for (;;) pause();
    }
    if (write(ends[1], &child, sizeof(child)) != sizeof(child)) std::abort();
    _exit(0);
  }
  pid_t child = 0;
  if (read(ends[0], &child, sizeof(child)) != sizeof(child)) std::abort();
  waitpid(parent, nullptr, 0);
  close(ends[0]);
  close(ends[1]);
  return child;
}

// The process after this one, once it has begun.
pid_t wait_for_next(const std::string& file, pid_t after) {
  for (;; std::this_thread::yield())
    if (const auto all = processes(file); !all.empty() && all.back().id != after) return all.back().id;
}

std::string value_of(const char* variable) {
  const char* const value = std::getenv(variable);
  return value == nullptr ? "-" : value;
}

int run(const std::string& file, const std::string& what, int kills) {
  const pid_t child = orphan();  // before the library has threads
  const std::vector<Process> before = file.empty() ? std::vector<Process>() : processes(file);
  const cox::HostClient client = cox::HostClient::load({cox::host_device_type, 0});
  if (!file.empty())
    note(file, "process " + std::to_string(getpid()) + " " + std::to_string(child) + " " + value_of("COX_STANDBY") +
                   " " + value_of("COX_RESTART"));
  const int restarts = std::atoi(value_of("COX_RESTART").c_str());
  cox::KeptSet set("state", {client.device_id()});
  const cox::Handle memory = client.kept(set, "value", sizeof(std::uint64_t)).handle;
  if (!file.empty()) note(file, "opened " + std::to_string(getpid()));
  if (std::ranges::any_of(before, [](const Process& each) { return lives(each.child); })) return 3;
  if (!lives(child)) return 4;
  const auto restart = static_cast<std::uint64_t>(restarts);
  if (restart != 0 && client.read_one(memory).to_vector<std::uint64_t>()[0] != restart) return 5;
  client.begin_update(set);
  client.write(memory, cox::Bytes::from_vector(std::vector<std::uint64_t>{restart + 1}));
  client.commit(set);
  client.sync().get();
  if (what == "end" && restarts < kills) {
    wait_for_next(file, getpid());
    std::raise(SIGKILL);
  } else if (what == "kill") {
    const pid_t standby = wait_for_next(file, getpid());
    kill(standby, SIGKILL);
    wait_for_next(file, standby);
  } else if (what == "wait" && restarts == 0) {
    for (;;) pause();
  }
  kill(child, SIGKILL);
  return what == "wait" ? 7 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  alarm(60);  // the end of a test that waits for what does not come
  try {
    return run(argc > 2 ? argv[1] : "", argc > 2 ? argv[2] : "", argc > 3 ? std::atoi(argv[3]) : 0);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
    return 1;
  }
}
