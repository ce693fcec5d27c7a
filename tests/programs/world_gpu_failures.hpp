#pragma once

// L16 and L14 for GPUs of several processes: what the processes are notified of when one of them fails, and that the
// others continue.

#include <coxswain/tests/programs/world_gpus.hpp>

#include <coxswain/collectives/world/world.hpp>
#include <coxswain/device_handle/base/find_cause.hpp>
#include <coxswain/device_handle/base/shutdown.hpp>
#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>
#include <coxswain/runtime/config/process_settings.hpp>
#include <coxswain/servers/cuda/driver/gpu_fault.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace cox::test {

using FailureKind = CollectiveError::Kind;

inline std::int64_t milliseconds_now() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// Part of the error of GpuProcess::poison().
constexpr const char* first_cause = "the image is neither PTX nor a cubin";

/// A process of the world, with one GPU. `NCCL` is not initialised before an operation needs it.
struct GpuProcess {
  static constexpr std::size_t elements = 1000;

  World world;
  CudaClient client;
  std::vector<DeviceId> devices;
  CommunicationId all;
  Handle values;
  Handle sums;

  explicit GpuProcess(const std::vector<DeviceId>& own)
      : world(World::join(own)),
        client(CudaClient::load(own.front())),
        devices(world.devices(cuda_device_type)),
        all(devices),
        values(client.create(Bytes::from_vector(std::vector<float>(elements, 1.0F)))),
        sums(client.empty(elements * sizeof(float))) {}

  /// Sums among `group`; throws what the collective throws.
  void sum(const CommunicationId& group) {
    client.all_reduce(values, sums, ElementType::F32, group);
    const auto read = client.read_one(sums).to_vector<float>();
    if (std::ranges::any_of(read, [&](float each) { return each != static_cast<float>(group.world_size()); }))
      throw std::runtime_error("the sum is wrong: " + std::to_string(read.back()));
  }
  /// All but process 1.
  [[nodiscard]] CommunicationId rest() const {
    std::vector<DeviceId> left = devices;
    left.erase(left.begin() + 1);
    return CommunicationId(left);
  }
  /// The memory has a failure as its producer (L14): a kernel that cannot be loaded.
  void poison() {
    constexpr std::string_view image = "no code at all";
    CudaKernelOptions options;
    options.parameters = {KernelParameter::buffer()};
    const auto failing =
        CudaKernel::from_image("failing", CubeDim::single(), std::as_bytes(std::span(image)), std::move(options));
    client.launch(failing, CubeCount::single(), KernelArguments().with_buffer(values));
  }
};

/// The kernel "lasting": (float* unused, u32 milliseconds).
inline CudaKernel lasting_kernel() {
#if COX_WORLD_STAND_INS
  FakeCuda* const fake = find_cuda_stand_in();
  {
    const std::lock_guard lock(fake->mutex);
    fake->kernels["lasting"] = {{address, word}, [] {
                                  return [end = std::int64_t{0}](const FakeCuda::Run& run) mutable {
                                    if (run.first_look) end = milliseconds_now() + number(run, 1);
                                    return milliseconds_now() >= end;
                                  };
                                }};
  }
  constexpr std::string_view image = ".version 8.0";  // the stand-in does not read the code
  CudaKernelOptions options;
  options.parameters = {KernelParameter::buffer(), KernelParameter::scalar(sizeof(std::uint32_t))};
  return CudaKernel::from_image("lasting", CubeDim::single(), std::as_bytes(std::span(image)), std::move(options));
#else
  return CudaKernel::from_source("lasting", CubeDim::single(), R"(
extern "C" __global__ void lasting(float*, unsigned milliseconds) {
  unsigned long long begin, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
  do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  while (now - begin < milliseconds * 1000000ULL);
})");
#endif
}
inline void launch_lasting(GpuProcess& process, const Handle& data, std::uint32_t milliseconds) {
  process.client.launch(lasting_kernel(), CubeCount::single(),
                        KernelArguments().with_buffer(data).with_scalar(milliseconds));
}

/// Prints what was thrown and when, for the first process to read.
template <class F>
void report(const char* what, F&& f) {
  std::string text = "nothing";
  try {
    f();
  } catch (...) {
    const auto* const error = find_cause<CollectiveError>(std::current_exception());
    text = (error == nullptr ? "another error" : std::to_string(static_cast<int>(error->kind()))) + ": " +
           describe(std::current_exception());
    std::ranges::replace(text, '\n', ' ');
  }
  std::printf("%s: %lld, %s\n", what, static_cast<long long>(milliseconds_now()), text.c_str());
  std::fflush(stdout);
}

// Sums until it fails.
inline void sum_for_ever(GpuProcess& process) {
  for (std::size_t i = 0;; ++i) {
    process.sum(process.all);
    if (i == 10) {
      std::printf("under way\n");
      std::fflush(stdout);
    }
  }
}

// The first process creates the file.
inline void wait_for_file(const std::string& name) {
  const std::filesystem::path file = std::filesystem::path(std::string(std::getenv("COX_WORLD")).substr(5)) / name;
  while (!std::filesystem::exists(file)) std::this_thread::yield();
}

inline void try_again(const char* what, GpuProcess& process, const CommunicationId& group) {
  report(what, [&] {
    process.client.ensure_init_collective(group);
    process.sum(group);
  });
}

inline void poison_one(GpuProcess& process) {
  process.sum(process.all);
  if (process.world.process() == 1) process.poison();
  report("sum", [&] { process.sum(process.all); });
  if (process.world.process() == 1) process.client.send(process.values, ElementType::F32, process.devices[0]);
  if (process.world.process() == 0) process.client.receive(process.sums, ElementType::F32, process.devices[1]);
  report("transfer", [&] {
    process.client.sync().get();
    if (process.world.process() == 0) static_cast<void>(process.client.read_one(process.sums));
  });
  if (process.world.process() == 1)
    process.client.write(process.values, Bytes::from_vector(std::vector<float>(GpuProcess::elements, 1.0F)));
  report("again", [&] { process.sum(process.all); });
}

// NCCL does not reduce floats in the order of ranks, kernels in peer memory do.
inline void sum_in_order(GpuProcess& process) {
  set_settings({{"collectives.reproducible", true}});
  report("sum", [&] { process.sum(process.all); });
  if (process.world.process() == 1) wait_for_file("go");  // until the others have been refused
  report("integers", [&] {
    process.client.all_reduce(process.values, process.sums, ElementType::I32, process.all, ReduceOperation::Max);
    if (process.client.read_one(process.sums).to_vector<float>() != std::vector<float>(GpuProcess::elements, 1.0F))
      throw std::runtime_error("the largest is wrong");
  });
}

using Scenario = std::function<void(GpuProcess&)>;
/// In the first sum, process 1 is killed or stopped by a stand-in: this variable names the function.
inline Scenario fails_by(const char* variable, const char* where) {
  return [variable, where](GpuProcess& process) {
    if (process.world.process() == 1) ::setenv(variable, where, 1);
    report("sum", [&] { process.sum(process.all); });
    try_again("rest", process, process.rest());
  };
}
inline const std::map<std::string, Scenario>& scenarios() {
  static const std::map<std::string, Scenario> all{
      {"killed",
       [](GpuProcess& process) {
         report("sum", [&] { sum_for_ever(process); });
         try_again("rest", process, process.rest());
       }},
      {"killed in the creation", fails_by("COX_FAKE_NCCL_DIES", "init")},
      {"killed in the split", fails_by("COX_FAKE_NCCL_DIES", "split")},
      {"killed while the ranks are connected", fails_by("COX_FAKE_NCCL_DIES", "operation")},
      // Behind the operations that connect it: it sums with the others, and sends and receives a byte for each.
      {"killed before the processes exchange memory", fails_by("COX_FAKE_NCCL_DIES", "operation 7")},
      {"killed before it passes its memory on", fails_by("COX_FAKE_CUDA_KILLED", "export")},
      {"stopped before it passes its memory on", fails_by("COX_FAKE_CUDA_STOPPED", "export")},
      {"killed before it has the memory of others", fails_by("COX_FAKE_CUDA_KILLED", "import")},
      {"killed before the processes agree about memory", fails_by("COX_FAKE_NCCL_DIES", "operation 8")},
#if COX_WORLD_STAND_INS
      {"a kernel that one process cannot load",
       [](GpuProcess& process) {
         FakeCuda* const fake = find_cuda_stand_in();
         if (process.world.process() == 1) {
           const std::lock_guard lock(fake->mutex);
           fake->kernels.erase("cox_one_shot_lines_f32_sum");
         }
         report("sum", [&] { process.sum(process.all); });
         report("integers", [&] {
           process.client.all_reduce(process.values, process.sums, ElementType::I32, process.all, ReduceOperation::Max);
           static_cast<void>(process.client.read_one(process.sums));
         });
       }},
#endif
      {"leader killed",
       [](GpuProcess& process) {
         report("sum", [&] { sum_for_ever(process); });
         try_again("again", process, process.all);
       }},
      {"mismatch",
       [](GpuProcess& process) {
         report("sum", [&] {
           const std::size_t count = process.world.process() == 1 ? 8 : 16;
           const auto part = [&](const Handle& of) {
             return of.offset_end((GpuProcess::elements - count) * sizeof(float));
           };
           process.client.all_reduce(part(process.values), part(process.sums), ElementType::F32, process.all);
           process.client.sync().get();
         });
         report("again", [&] { process.sum(process.all); });
       }},
      {"never ready",
       [](GpuProcess& process) {
         if (process.world.process() == 1) wait_for_file("go");  // until the others have been told
         report("sum", [&] { process.sum(process.all); });
         try_again("late", process, process.all);
       }},
      {"missing",
       [](GpuProcess& process) {
         process.sum(process.all);
         if (process.world.process() == 1) wait_for_file("go");
         report("sum", [&] { process.sum(process.all); });
         try_again("late", process, process.all);
       }},
      {"in the order of ranks", sum_in_order},
      {"in the order of ranks for one process",
       [](GpuProcess& process) {
         if (process.world.process() == 1) return sum_in_order(process);
         report("sum", [&] { process.sum(process.all); });
         process.client.all_reduce(process.values, process.sums, ElementType::I32, process.all, ReduceOperation::Max);
         report("integers", [&] { static_cast<void>(process.client.read_one(process.sums)); });
       }},
      {"poison", poison_one},
      {"poison after sums of one process", poison_one},
      {"poison that spreads",  // what depends on the sum is a part of another one
       [](GpuProcess& process) {
         process.sum(process.all);
         if (process.world.process() != 1) process.sum(process.rest());
         if (process.world.process() == 1) process.poison();
         process.client.all_reduce(process.values, process.sums, ElementType::F32, process.all);
         if (process.world.process() != 1)
           process.client.all_reduce(process.sums, process.values, ElementType::F32, process.rest());
         report("sum", [&] {
           static_cast<void>(process.client.read_one(process.world.process() == 1 ? process.sums : process.values));
         });
         process.client.write(process.values, Bytes::from_vector(std::vector<float>(GpuProcess::elements, 1.0F)));
         report("again", [&] { process.sum(process.all); });
       }},
      {"left",
       [](GpuProcess& process) {
         if (process.world.process() == 1) {
           process.sum(process.all);
           return process.world.leave();
         }
         report("sum", [&] { sum_for_ever(process); });
         try_again("rest", process, process.rest());
       }},
      // It has given its data long before process 0 takes them.
      {"leaves after a send",
       [](GpuProcess& process) {
         process.sum(process.all);
         if (process.world.process() == 0) launch_lasting(process, process.sums, 500);
         if (process.world.process() == 1) process.client.send(process.values, ElementType::F32, process.devices[0]);
         if (process.world.process() == 0) process.client.receive(process.sums, ElementType::F32, process.devices[1]);
         report("transfer", [&] { process.client.sync().get(); });
         if (process.world.process() == 1) return process.world.leave();
         if (process.world.process() == 0)
           report("values", [&] {
             if (process.client.read_one(process.sums).to_vector<float>() !=
                 std::vector<float>(GpuProcess::elements, 1.0F))
               throw std::runtime_error("the values are wrong");
           });
         report("sum", [&] { process.sum(process.all); });
         try_again("rest", process, process.rest());
       }},
#if !COX_WORLD_STAND_INS
      {"killed beside a long kernel",
       [](GpuProcess& process) {
         if (process.world.process() != 1) {
           process.sum(process.all);
           std::thread([&] { launch_lasting(process, process.client.empty(sizeof(float)), 15'000); }).join();
         } else {
           process.sum(process.all);
         }
         report("sum", [&] { sum_for_ever(process); });
         try_again("rest", process, process.rest());
       }},
      {"GPU fault",
       [](GpuProcess& process) {
         process.sum(process.all);
         if (process.world.process() != 1) {
           report("sum", [&] { sum_for_ever(process); });
           return try_again("rest", process, process.rest());
         }
         const auto trap = CudaKernel::from_source(
             "trap", CubeDim::single(), "extern \"C\" __global__ void trap(float*) { asm volatile(\"trap;\"); }");
         process.client.launch(trap, CubeCount::single(), KernelArguments().with_buffer(process.values));
         report("sum", [&] { process.sum(process.all); });
         std::_Exit(exit_code(0));
       }},
#endif
  };
  return all;
}

/// Uses two GPUs of this process, before it has joined a world.
inline void sum_alone() {
  const std::vector<DeviceId> own = gpus_of_process(0, 2);
  const CommunicationId both(own);
  std::vector<CudaClient> clients;
  std::vector<Handle> sums;
  for (const DeviceId device : own) {
    CudaClient& client = clients.emplace_back(CudaClient::load(device));
    const Handle one = client.create(Bytes::from_vector(std::vector<float>{1.0F}));
    sums.push_back(client.empty(sizeof(float)));
    client.all_reduce(one, sums.back(), ElementType::F32, both);
  }
  for (std::size_t i = 0; i < own.size(); ++i)
    if (clients[i].read_one(sums[i]).to_vector<float>() != std::vector<float>{2.0F})
      throw std::runtime_error("the sum of one process is wrong");
}

inline int run_scenario(const std::string& name) {
  prepare_gpus();
  try {
    const std::size_t number = std::stoul(std::getenv("COX_WORLD_PROCESS"));
    if (name == "poison after sums of one process") sum_alone();
    GpuProcess process(gpus_of_process(number, 1));
#if COX_WORLD_STAND_INS
    if (name != "poison after sums of one process") require_no_nccl();
#endif
    scenarios().at(name)(process);
    process.world.leave();
  } catch (...) {
    std::fprintf(stderr, "%s\n", describe(std::current_exception()).c_str());
    return 2;
  }
  return shutdown_all() == ShutdownOutcome::Drained ? 0 : 1;
}

/// The first process: runs the scenarios, and checks what the others have said.
class FailureTest {
 public:
  explicit FailureTest(std::size_t processes) : processes_(processes) {}

  /// A line "what: TIME, 8: text" of a process.
  struct Line {
    long long milliseconds = -1;  // at which it was said
    std::string text;

    [[nodiscard]] bool is(FailureKind kind) const {
      return text.starts_with(std::to_string(static_cast<int>(kind)) + ":");
    }
    [[nodiscard]] bool names(const std::string& what) const { return text.find(what) != std::string::npos; }
  };
  [[nodiscard]] static Line line_of(const std::string& output, const std::string& what) {
    const std::size_t at = output.find("\n" + what + ": ");
    if (at == std::string::npos) return {};
    const std::size_t begin = at + what.size() + 3;
    const std::size_t comma = output.find(", ", begin);
    return {std::stoll(output.substr(begin)), output.substr(comma + 2, output.find('\n', comma) - comma - 2)};
  }

  void expect(bool holds, const std::string& what) {
    if (holds) return;
    std::fprintf(stderr, "not so: %s\n", what.c_str());
    ++failures_;
  }

  using Check = std::function<void(std::size_t process, const std::string& output)>;
  /// `act` is called when all processes run; `victims` are not waited for.
  void run(const std::string& name, const std::vector<std::string>& variables,
           const std::function<void(WorldProcesses&)>& act, const Check& check,
           const std::vector<std::size_t>& victims = {}) {
    WorldProcesses world(processes_, {"work", name}, variables);
    signalled_ = 0;
    act(world);
    const int before = failures_;
    for (std::size_t process = 0; process < processes_; ++process) {
      if (std::ranges::find(victims, process) != victims.end()) continue;
      const int code = world.wait(process);
      const std::string output = "\n" + world.output(process);
      expect(code == 0, name + ": process " + std::to_string(process) + " ended with " + std::to_string(code));
      check(process, output);
      if (failures_ != before) std::fprintf(stderr, "%s, process %zu said:%s\n", name.c_str(), process, output.c_str());
    }
  }
  /// Ends the test if the process does not print this within a minute.
  static void wait_for(const WorldProcesses& world, std::size_t process, const std::string& text) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (world.output(process).find(text) == std::string::npos) {
      if (std::chrono::steady_clock::now() > deadline) {
        std::fprintf(stderr, "process %zu does not get as far as '%s':\n%s\n", process, text.c_str(),
                     world.output(process).c_str());
        std::exit(1);
      }
      std::this_thread::yield();
    }
  }
  /// Sends the signal when all processes are in the middle of sums.
  [[nodiscard]] std::function<void(WorldProcesses&)> signal(std::size_t process, int number) {
    return [this, process, number](WorldProcesses& world) {
      for (std::size_t each = 0; each < processes_; ++each) wait_for(world, each, "under way");
      signalled_ = milliseconds_now();
      world.kill(process, number);
    };
  }
  /// That the survivors of process 1 are notified in time, and continue.
  [[nodiscard]] Check survivors(const std::string& name, std::vector<FailureKind> kinds, long long within) {
    return [this, name, kinds, within](std::size_t, const std::string& output) {
      const Line sum = line_of(output, "sum");
      expect(std::ranges::any_of(kinds, [&](FailureKind kind) { return sum.is(kind); }) && sum.names("process 1"),
             name + ": the survivors are told who is gone");
      expect(signalled_ == 0 || sum.milliseconds - signalled_ < within, name + ": the survivors are told in time");
      expect(line_of(output, "rest").text == "nothing", name + ": the survivors go on");
    };
  }
  /// That the poison of process 1 reaches all, and they continue.
  [[nodiscard]] Check poisoned(const std::string& name) {
    return [this, name](std::size_t process, const std::string& output) {
      expect(line_of(output, "sum").names(first_cause), name + ": all are told the first cause");
      const Line transfer = line_of(output, "transfer");
      if (process <= 1)
        expect(transfer.names(first_cause) && transfer.names("p1/cuda:"),
               name + ": both errors name the rank that failed");
      else
        expect(transfer.text == "nothing", name + ": the other processes get no error");
      expect(line_of(output, "again").text == "nothing", name + ": the communicator goes on");
    };
  }
  /// For the missing process to go on, when the others have been told.
  static void let_go(WorldProcesses& world, std::size_t processes) {
    for (std::size_t process = 0; process < processes; ++process)
      if (process != 1) wait_for(world, process, "sum: ");
    std::ofstream(world.folder() / "go") << "go";
  }

  /// The scenarios that need nothing of the stand-ins. `patience`: in which survivors are told of a killed process.
  void run_all(long long patience) {
    const auto nothing = [](WorldProcesses&) {};
    const auto go_on = [this](const std::string& name) {
      return [this, name](WorldProcesses& world) { let_go(world, processes_); };
    };
    for (const std::string kernels : {"COX_COLLECTIVES_PEER_MEMORY=true", "COX_COLLECTIVES_PEER_MEMORY=false"}) {
      run("killed", {kernels}, signal(1, SIGKILL), survivors("killed", {FailureKind::ProcessGone}, patience), {1});
      std::vector<std::string> variables = detect_silence();
      variables.push_back(kernels);
      run("killed", variables, signal(1, SIGSTOP),
          survivors("stopped", {FailureKind::ProcessSilent, FailureKind::ProcessGone},
                    patience + 700 + silence.count()),
          {1});
    }
    run("leader killed", {}, signal(0, SIGKILL),
        [this](std::size_t, const std::string& output) {
          const Line sum = line_of(output, "sum");
          expect(sum.is(FailureKind::WorldGone) || sum.is(FailureKind::ProcessGone), "leader killed: all are told");
          expect(line_of(output, "again").is(FailureKind::WorldGone), "leader killed: the world is gone");
        },
        {0});
    signalled_ = 0;
    run("mismatch", {}, nothing, [this](std::size_t, const std::string& output) {
      const Line sum = line_of(output, "sum");
      expect(sum.is(FailureKind::Mismatch) && sum.names("of 8 f32") && sum.names("of 16 f32"),
             "mismatch: all are told");
      expect(line_of(output, "again").text == "nothing", "mismatch: the communicator goes on");
    });
    for (const std::string name : {"never ready", "missing"})
      run(name, {"COX_COLLECTIVES_TIMEOUT=2s"}, go_on(name), [this, name](std::size_t, const std::string& output) {
        const Line sum = line_of(output, "sum");
        expect(sum.is(FailureKind::Timeout) && sum.names("process 1"), name + ": all are told who is missing");
        expect(line_of(output, "late").text == "nothing", name + ": the communicator is opened again");
      });
    run("poison", {}, nothing, poisoned("poison"));
    run("poison", {"COX_COLLECTIVES_PEER_MEMORY=false"}, nothing, poisoned("poison, by NCCL"));
    const std::string in_order = "in the order of ranks";
    run(in_order, {}, go_on(in_order), [this, in_order](std::size_t, const std::string& output) {
      for (const char* const what : {"sum", "integers"})
        expect(line_of(output, what).text == "nothing", in_order + ": the sum is right");
    });
    run_without_order(in_order, {"COX_COLLECTIVES_PEER_MEMORY=false"}, "the setting collectives.peer_memory is false");
    for (const std::string kernels : {"COX_COLLECTIVES_PEER_MEMORY=true", "COX_COLLECTIVES_PEER_MEMORY=false"})
      run("leaves after a send", {kernels, "COX_WORLD_HEARTBEAT=50ms"}, nothing,
          [this](std::size_t process, const std::string& output) {
            const std::string name = "leaves after a send: ";
            expect(line_of(output, "transfer").text == "nothing", name + "the transfer succeeds");
            if (process == 1) return;
            if (process == 0) expect(line_of(output, "values").text == "nothing", name + "the values are right");
            const Line sum = line_of(output, "sum");
            expect(sum.is(FailureKind::ProcessGone) && sum.names("process 1"), name + "the others are told");
            expect(line_of(output, "rest").text == "nothing", name + "the others go on");
          });
    run("left", {}, nothing, [this](std::size_t process, const std::string& output) {
      if (process == 1) return;
      const Line sum = line_of(output, "sum");
      expect(sum.is(FailureKind::ProcessGone) && sum.names("process 1"), "left: the others are told");
      expect(line_of(output, "rest").text == "nothing", "left: the others go on");
    });
  }

  /// That sums in the order of ranks are refused for this reason.
  void run_without_order(const std::string& name, const std::vector<std::string>& variables, const std::string& why) {
    run(
        name, variables, [this](WorldProcesses& world) { let_go(world, processes_); },
        [&](std::size_t, const std::string& output) {
          const Line sum = line_of(output, "sum");
          expect(sum.is(FailureKind::RankFailed) && sum.names(why), name + ": refused, since " + why);
          expect(line_of(output, "integers").text == "nothing", name + ": the communicator goes on");
        });
  }

  [[nodiscard]] int result() const noexcept { return failures_ == 0 ? 0 : 1; }

 private:
  const std::size_t processes_;
  int failures_ = 0;
  long long signalled_ = 0;
};

}  // namespace cox::test
