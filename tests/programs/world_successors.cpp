// L16: a process that is killed gets a successor, and the world goes on with it.

#include <coxswain/tests/programs/world_processes.hpp>

#include <coxswain/collectives/store/world_token.hpp>
#include <coxswain/collectives/world/world.hpp>
#include <coxswain/collectives/world/world_leader.hpp>
#include <coxswain/device_handle/base/find_cause.hpp>
#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>
#include <coxswain/servers/host/server/host_server.hpp>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using cox::ElementType;
using Kind = cox::CollectiveError::Kind;
using namespace std::chrono_literals;

constexpr std::size_t processes = 3;
constexpr std::size_t elements = 100;
constexpr std::int64_t steps_at_the_end = 100;

/// Steps, each a sum and the agreement about what comes next. A process that joins later takes the step of the others.
class Worker {
 public:
  /// Ends after some steps when the file exists.
  explicit Worker(std::string file) : file_(std::move(file)) {}

  int run() {
    bool has_failed = false;
    while (!is_done_) {
      try {
        if (has_failed) recover();
        has_failed = false;
        step();
        std::printf("step\n");
        std::fflush(stdout);
      } catch (...) {
        const auto* const error = cox::find_cause<cox::CollectiveError>(std::current_exception());
        const bool is_gone =
            error != nullptr && (error->kind() == Kind::ProcessGone || error->kind() == Kind::ProcessSilent);
        if (!is_gone) throw;
        has_failed = true;  // also if a process ends during the recovery
      }
    }
    world_.leave();
    return 0;
  }

 private:
  void step() {
    // A successor takes the number of the others.
    client_.write(state_, cox::Bytes::from_vector(std::vector<std::int64_t>{step_, 0}));
    client_.all_reduce(state_, agreed_, ElementType::I64, all_, cox::ReduceOperation::Max);
    const auto agreed = client_.read_one(agreed_).to_vector<std::int64_t>();
    step_ = agreed[0] + 1;
    client_.write(values_, cox::Bytes::from_vector(std::vector<float>(elements, static_cast<float>(step_ % 100))));
    client_.all_reduce(values_, sums_, ElementType::F32, all_);
    if (client_.read_one(sums_).to_vector<float>().back() !=
        static_cast<float>(step_ % 100) * static_cast<float>(processes))
      throw std::runtime_error("the sum is wrong");
    // The steps since the first process has seen the file, or since the last failure: the smallest number decides.
    if (std::filesystem::exists(file_)) ++last_steps_;
    client_.write(state_, cox::Bytes::from_vector(std::vector<std::int64_t>{last_steps_, 0}));
    client_.all_reduce(state_, agreed_, ElementType::I64, all_, cox::ReduceOperation::Min);
    is_done_ = client_.read_one(agreed_).to_vector<std::int64_t>()[0] >= steps_at_the_end;
  }

  void recover() {
    last_steps_ = 0;
    if (!world_.wait_for_successors(60s)) throw std::runtime_error("no successor");
    client_.ensure_init_collective(all_);
    for (const cox::Handle& each : {state_, agreed_, values_, sums_}) client_.accept(each);
  }

  const std::string file_;
  cox::World world_ = cox::World::join({{cox::host_device_type, 0}});
  cox::HostClient client_ = cox::HostClient::load({cox::host_device_type, 0});
  cox::CommunicationId all_{world_.devices(cox::host_device_type)};
  cox::Handle state_ = client_.empty(2 * sizeof(std::int64_t));
  cox::Handle agreed_ = client_.empty(2 * sizeof(std::int64_t));
  cox::Handle values_ = client_.empty(elements * sizeof(float));
  cox::Handle sums_ = client_.empty(elements * sizeof(float));
  std::int64_t step_ = 0;
  std::int64_t last_steps_ = 0;
  bool is_done_ = false;
};

std::size_t count_of(const std::string& text, const std::string& word) {
  std::size_t count = 0;
  for (std::size_t at = 0; (at = text.find(word, at)) != std::string::npos; ++at) ++count;
  return count;
}

int run_world(unsigned kills, unsigned seed) {
  const cox::detail::WorldToken token = cox::detail::random_token();
  const cox::WorldLeader leader({.processes = processes, .run = "test", .token = token});
  const cox::test::TemporaryFolder folder;
  const std::string file = (folder.path() / "end").string();
  cox::test::WorldProcesses world(
      processes, {"work", file},
      {"COX_WORLD=" + leader.address(), "COX_HOST_DEVICES=1", "COX_WORLD_TOKEN=" + cox::detail::to_hexadecimal(token)});
  std::minstd_rand random(seed);
  std::vector<unsigned> restarts(processes);
  std::vector<std::size_t> done(processes);  // steps before it was started for the last time
  for (unsigned kill = 0; kill < kills; ++kill) {
    const std::size_t victim = random() % processes;
    // One in four is killed as it starts, the others at any moment of their work. The first one is killed when the
    // world is complete: if a process ends before, those that have not connected to it cannot join.
    const bool is_early = random() % 4 == 0 && kill > 0;
    const std::size_t steps = is_early ? 0 : 1 + random() % 20;
    while (count_of(world.output(victim), "step\n") < done[victim] + steps) std::this_thread::yield();
    world.kill(victim, SIGKILL);
    static_cast<void>(world.wait(victim));
    done[victim] = count_of(world.output(victim), "step\n");
    world.start_again(victim, "COX_WORLD_RESTART=" + std::to_string(++restarts[victim]));
  }
  std::ofstream(file) << "end";
  int failures = 0;
  for (std::size_t process = 0; process < processes; ++process)
    if (const int code = world.wait(process); code != 0) {
      std::fprintf(stderr, "seed %u: process %zu ended with %d and said:\n%s\n", seed, process, code,
                   world.output(process).c_str());
      ++failures;
    }
  return failures == 0 ? 0 : 1;
}

}  // namespace

int main(int count, char** arguments) {
  if (count > 1 && std::string(arguments[1]) == "work") {
    try {
      return Worker(arguments[2]).run();
    } catch (...) {
      std::fprintf(stderr, "%s\n", cox::describe(std::current_exception()).c_str());
      return 2;
    }
  }
  const unsigned kills = count > 1 ? static_cast<unsigned>(std::atoi(arguments[1])) : 6;
  const unsigned seed = count > 2 ? static_cast<unsigned>(std::atoi(arguments[2])) : std::random_device()();
  return run_world(kills, seed);
}
