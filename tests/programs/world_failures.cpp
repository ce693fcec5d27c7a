// L16: what the processes of a world are notified of when one of them fails, and that the others continue.

#include <coxswain/tests/programs/world_processes.hpp>

#include <coxswain/collectives/world/world.hpp>
#include <coxswain/device_handle/base/find_cause.hpp>
#include <coxswain/device_handle/base/shutdown.hpp>
#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>
#include <coxswain/servers/host/server/host_server.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

using cox::ElementType;
using Kind = cox::CollectiveError::Kind;
using Clock = std::chrono::steady_clock;

constexpr std::size_t elements = 1000;
constexpr std::chrono::milliseconds late_by = 5 * cox::test::silence;

struct Process {
  cox::World world;
  cox::HostClient client;
  std::vector<cox::DeviceId> devices;
  cox::CommunicationId all;
  cox::Handle values;
  cox::Handle sums;

  Process()
      : world(cox::World::join({{cox::host_device_type, 0}})),
        client(cox::HostClient::load({cox::host_device_type, 0})),
        devices(world.devices(cox::host_device_type)),
        all(devices),
        values(client.create(cox::Bytes::from_vector(std::vector<float>(elements, 1.0F)))),
        sums(client.empty(elements * sizeof(float))) {}

  /// Sums among `group`; throws what the collective throws.
  void sum(const cox::CommunicationId& group) {
    client.all_reduce(values, sums, ElementType::F32, group);
    if (client.read_one(sums).to_vector<float>().back() != static_cast<float>(group.world_size()))
      throw std::runtime_error("the sum is wrong");
  }
};

/// Prints what was thrown and when, for the first process to read.
template <class F>
void report(const char* what, F&& f) {
  const auto began = Clock::now();
  std::string text = "nothing";
  try {
    f();
  } catch (...) {
    const auto* const error = cox::find_cause<cox::CollectiveError>(std::current_exception());
    text = (error == nullptr ? "another error" : std::to_string(static_cast<int>(error->kind()))) + ": " +
           cox::describe(std::current_exception());
  }
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - began).count();
  std::printf("%s: %lld ms, %s\n", what, static_cast<long long>(took), text.c_str());
  std::fflush(stdout);
}

// Sums until it fails.
void sum_for_ever(Process& process) {
  for (std::size_t i = 0;; ++i) {
    process.sum(process.all);
    if (i == 10) {
      std::printf("under way\n");
      std::fflush(stdout);
    }
  }
}

// The first process creates the file.
void wait_for_file() {
  const std::filesystem::path file = std::filesystem::path(std::string(std::getenv("COX_WORLD")).substr(5)) / "go";
  while (!std::filesystem::exists(file)) std::this_thread::yield();
}

const std::map<std::string, std::function<void(Process&)>> scenarios{
    {"killed",
     [](Process& process) {
       report("sum", [&] { sum_for_ever(process); });
       const cox::CommunicationId rest({process.devices[0], process.devices[2]});
       report("rest", [&] { process.sum(rest); });
     }},
    {"leader killed",
     [](Process& process) {
       report("sum", [&] { sum_for_ever(process); });
       report("again", [&] {
         process.client.ensure_init_collective(process.all);
         process.sum(process.all);
       });
     }},
    {"mismatch",
     [](Process& process) {
       report("sum", [&] {
         const std::size_t count = process.world.process() == 1 ? 8 : 16;
         process.client.all_reduce(process.values.offset_end((elements - count) * sizeof(float)),
                                   process.sums.offset_end((elements - count) * sizeof(float)), ElementType::F32,
                                   process.all);
         process.client.sync().get();
       });
       report("again", [&] { process.sum(process.all); });
     }},
    {"missing",
     [](Process& process) {
       if (process.world.process() == 1) wait_for_file();  // until the others have been told
       report("sum", [&] { process.sum(process.all); });
       report("late", [&] {
         process.client.ensure_init_collective(process.all);
         process.sum(process.all);
       });
     }},
    {"poison",
     [](Process& process) {
       if (process.world.process() == 1) {
         const cox::HostKernel failing("failing", {}, 1,
                                       [](const cox::KernelContext&) { throw std::runtime_error("no data"); });
         process.client.launch(failing, cox::CubeCount::of_1d(1), cox::KernelArguments{}.with_buffer(process.values));
       }
       report("sum", [&] { process.sum(process.all); });
       if (process.world.process() == 1)
         process.client.write(process.values, cox::Bytes::from_vector(std::vector<float>(elements, 1.0F)));
       report("again", [&] { process.sum(process.all); });
     }},
    // The operation is released at once: the stream of one rank does not reach it for a while.
    {"late",
     [](Process& process) {
       process.sum(process.all);
       if (process.world.process() == 1) {
         const cox::HostKernel lasting("lasting", {}, 1,
                                       [](const cox::KernelContext&) { std::this_thread::sleep_for(late_by); });
         process.client.launch(lasting, cox::CubeCount::of_1d(1), cox::KernelArguments{}.with_buffer(process.values));
       }
       report("sum", [&] { process.sum(process.all); });
       report("again", [&] { process.sum(process.all); });
     }},
    {"left",
     [](Process& process) {
       if (process.world.process() == 1) return process.world.leave();
       report("sum", [&] { sum_for_ever(process); });
       const cox::CommunicationId rest({process.devices[0], process.devices[2]});
       report("rest", [&] { process.sum(rest); });
     }},
    // The child leaves the world, as it does when it ends as its parent would.
    {"child leaves",
     [](Process& process) {
       process.sum(process.all);
       if (process.world.process() == 1) {
         const pid_t child = ::fork();
         if (child == 0) {
           ::alarm(20);
           process.world.leave();
           ::_exit(0);
         }
         int status = -1;
         ::waitpid(child, &status, 0);
         std::printf("child: %d\n", status);
       }
       report("sum", [&] { process.sum(process.all); });
     }},
    // Process 2 stops before it gives its share, and process 1, which has given its own, is killed.
    {"stopped, and another killed",
     [](Process& process) {
       process.sum(process.all);
       if (process.world.process() == 2) {
         const cox::HostKernel stopping("stopping", {}, 1, [](const cox::KernelContext&) {
           std::printf("under way\n");
           std::fflush(stdout);
           ::raise(SIGSTOP);
         });
         process.client.launch(stopping, cox::CubeCount::of_1d(1), cox::KernelArguments{}.with_buffer(process.values));
       }
       process.client.all_reduce(process.values, process.sums, ElementType::F32, process.all);
       process.client.flush();
       if (process.world.process() == 1) {
         std::printf("under way\n");
         std::fflush(stdout);
       }
       report("sum", [&] { process.client.sync().get(); });
     }},
    {"killed, its child lives on",
     [](Process& process) {
       if (process.world.process() == 1 && ::fork() == 0) {
         ::alarm(60);
         wait_for_file();  // until the others have been told
         ::_exit(0);
       }
       report("sum", [&] { sum_for_ever(process); });
     }},
};

int work(const std::string& name) {
  Process process;
  scenarios.at(name)(process);
  process.world.leave();
  return 0;
}

int failures = 0;

void expect(bool holds, const std::string& what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what.c_str());
  ++failures;
}

/// A line "what: 12 ms, 8: text" of a process.
struct Line {
  long long milliseconds = -1;
  std::string text;
};
Line line_of(const std::string& output, const std::string& what) {
  const std::size_t at = output.find(what + ": ");
  if (at == std::string::npos) return {};
  const std::size_t begin = at + what.size() + 2;
  const std::size_t comma = output.find(", ", begin);
  return {std::stoll(output.substr(begin)), output.substr(comma + 2, output.find('\n', comma) - comma - 2)};
}

bool is(const Line& line, Kind kind) { return line.text.starts_with(std::to_string(static_cast<int>(kind)) + ":"); }
bool names(const Line& line, const std::string& what) { return line.text.find(what) != std::string::npos; }

void wait_until_under_way(const cox::test::WorldProcesses& world, std::size_t process) {
  while (world.output(process).find("under way") == std::string::npos) std::this_thread::yield();
}

/// Runs a scenario in three processes and checks what each of them has said.
void run(const std::string& name, const std::vector<std::string>& variables,
         const std::function<void(cox::test::WorldProcesses&)>& act,
         const std::function<void(std::size_t process, const std::string& output)>& check,
         const std::vector<std::size_t>& victims = {}) {
  std::vector<std::string> all{"COX_HOST_DEVICES=1"};
  all.insert(all.end(), variables.begin(), variables.end());
  cox::test::WorldProcesses world(3, {"work", name}, all);
  act(world);
  const int before = failures;
  for (std::size_t process = 0; process < 3; ++process) {
    if (std::find(victims.begin(), victims.end(), process) != victims.end()) continue;
    const int code = world.wait(process);
    const std::string output = world.output(process);
    expect(code == 0, name + ": process " + std::to_string(process) + " ended with " + std::to_string(code));
    check(process, output);
    if (failures != before) std::fprintf(stderr, "process %zu said:\n%s\n", process, output.c_str());
  }
}

void nothing(cox::test::WorldProcesses&) {}

}  // namespace

int main(int count, char** arguments) {
  if (count > 1) {
    try {
      return work(arguments[2]);
    } catch (...) {
      std::fprintf(stderr, "%s\n", cox::describe(std::current_exception()).c_str());
      return 2;
    }
  }
  run(
      "killed", {},
      [](auto& world) {
        wait_until_under_way(world, 0);
        wait_until_under_way(world, 1);
        world.kill(1, SIGKILL);
      },
      [](std::size_t, const std::string& output) {
        const Line sum = line_of(output, "sum");
        expect(is(sum, Kind::ProcessGone) && names(sum, "process 1"), "killed: the survivors are told who is gone");
        expect(line_of(output, "rest").text == "nothing", "killed: the survivors go on");
      },
      {1});
  run(
      "leader killed", {},
      [](auto& world) {
        wait_until_under_way(world, 0);
        wait_until_under_way(world, 1);
        world.kill(0, SIGKILL);
      },
      [](std::size_t, const std::string& output) {
        const Line sum = line_of(output, "sum");
        expect(is(sum, Kind::WorldGone) || is(sum, Kind::ProcessGone), "leader killed: the others are told");
        expect(is(line_of(output, "again"), Kind::WorldGone), "leader killed: the world is gone");
      },
      {0});
  run("child leaves", {}, nothing, [](std::size_t process, const std::string& output) {
    if (process == 1) expect(output.find("child: 0\n") != std::string::npos, "child leaves: the child has ended");
    expect(line_of(output, "sum").text == "nothing", "child leaves: the world goes on");
  });
  run(
      "killed, its child lives on", {},
      [](auto& world) {
        for (std::size_t process = 0; process < 3; ++process) wait_until_under_way(world, process);
        world.kill(1, SIGKILL);
        for (const std::size_t process : {std::size_t{0}, std::size_t{2}})
          while (world.output(process).find("sum: ") == std::string::npos) std::this_thread::yield();
        std::ofstream(world.folder() / "go") << "go";
      },
      [](std::size_t, const std::string& output) {
        const Line sum = line_of(output, "sum");
        expect(is(sum, Kind::ProcessGone) && names(sum, "process 1"), "its child lives on: the survivors are told");
      },
      {1});
  run("mismatch", {}, nothing, [](std::size_t, const std::string& output) {
    const Line sum = line_of(output, "sum");
    expect(is(sum, Kind::Mismatch) && names(sum, "of 8 f32") && names(sum, "of 16 f32"), "mismatch: all are told");
    expect(line_of(output, "again").text == "nothing", "mismatch: the communicator goes on");
  });
  run(
      "missing", {"COX_COLLECTIVES_TIMEOUT=2s"},
      [](auto& world) {
        for (const std::size_t process : {std::size_t{0}, std::size_t{2}})
          while (world.output(process).find("sum: ") == std::string::npos) std::this_thread::yield();
        std::ofstream(world.folder() / "go") << "go";
      },
      [](std::size_t, const std::string& output) {
        const Line sum = line_of(output, "sum");
        expect(is(sum, Kind::Timeout) && names(sum, "process 1"), "missing: all are told who is missing");
        expect(line_of(output, "late").text == "nothing", "missing: the communicator is opened again");
      });
  run("poison", {}, nothing, [](std::size_t, const std::string& output) {
    const Line sum = line_of(output, "sum");
    expect(names(sum, "no data"), "poison: all are told the first cause");
    expect(line_of(output, "again").text == "nothing", "poison: the communicator goes on");
  });
  run("left", {}, nothing, [](std::size_t process, const std::string& output) {
    if (process == 1) return;
    const Line sum = line_of(output, "sum");
    expect(is(sum, Kind::ProcessGone) && names(sum, "process 1"), "left: the others are told");
    expect(line_of(output, "rest").text == "nothing", "left: the others go on");
  });
  run(
      "killed", cox::test::detect_silence(),
      [](auto& world) {
        wait_until_under_way(world, 0);
        wait_until_under_way(world, 1);
        world.kill(1, SIGSTOP);
      },
      [](std::size_t, const std::string& output) {
        const Line sum = line_of(output, "sum");
        expect((is(sum, Kind::ProcessSilent) || is(sum, Kind::ProcessGone)) && names(sum, "process 1"),
               "stopped: the survivors are told who is silent");
        expect(line_of(output, "rest").text == "nothing", "stopped: the survivors go on");
      },
      {1});
  run(
      "stopped, and another killed",
      [] {
        std::vector<std::string> variables = cox::test::detect_silence();
        variables.emplace_back("COX_COLLECTIVES_TIMEOUT=20s");
        return variables;
      }(),
      [](auto& world) {
        wait_until_under_way(world, 1);
        wait_until_under_way(world, 2);
        world.kill(1, SIGKILL);
        while (world.output(0).find("sum: ") == std::string::npos) std::this_thread::yield();
        world.kill(2, SIGKILL);  // else process 0 waits for it to leave
      },
      [](std::size_t, const std::string& output) {
        const Line sum = line_of(output, "sum");
        expect(is(sum, Kind::ProcessSilent) || is(sum, Kind::ProcessGone),
               "stopped, and another killed: the survivor is told before the timeout");
      },
      {1, 2});
  // Process 1 is late for 0, to which it has connected, and for 2, which has connected to it.
  run("late", cox::test::detect_silence(), nothing, [](std::size_t, const std::string& output) {
    const Line sum = line_of(output, "sum");
    expect(sum.text == "nothing", "late: the sum succeeds");
    expect(sum.milliseconds >= late_by.count() / 2, "late: the others have waited");
    expect(line_of(output, "again").text == "nothing", "late: so does the next one");
  });
  return failures == 0 ? 0 : 1;
}
