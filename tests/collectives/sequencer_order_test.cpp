// Overlapping communicators, submissions in any order: the devices must finish. LaunchModel says whether they do.

#include <coxswain/tests/collectives/launch_model.hpp>
#include <coxswain/tests/collectives/launch_program.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <rapidcheck.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <latch>
#include <map>
#include <random>
#include <set>
#include <thread>
#include <utility>
#include <vector>

using namespace cox;
using namespace cox::test;

namespace {

/// Every device launches what its ranks submit at once: what the sequencer is there to prevent.
std::size_t stuck_without_sequencer(const Program& program) {
  LaunchModel model(program.devices);
  std::map<std::pair<std::size_t, std::size_t>, std::uint64_t> next;
  for (const Submission& submission : program.submissions)
    model.launch(program.device_of(submission),
                 {submission.communicator, ++next[{submission.communicator, submission.rank}]});
  return model.stuck(program.communicators);
}

/// One thread per device, which makes the device's submissions.
void run_in_threads(const Program& program, Run& run, std::size_t abort_every = 0) {
  std::latch start(static_cast<std::ptrdiff_t>(program.devices));
  std::vector<std::jthread> clients;
  for (std::size_t device = 0; device < program.devices; ++device)
    clients.emplace_back([&, device] {
      start.arrive_and_wait();
      std::size_t mine = 0;
      for (const Submission& submission : program.submissions) {
        if (program.device_of(submission).index != device) continue;
        run.submit(submission);
        if (abort_every > 0 && device == 0 && ++mine % abort_every == 0)
          run.abort(mine / abort_every % program.communicators.size());
      }
    });
}

/// Says the plain way which operations must be refused for a ring.
class Rings {
 public:
  void submit(LaunchModel::Operation operation, const LaunchModel::Operations& after) {
    if (refused_.contains(operation)) return;
    waits_for_[operation].insert(after.begin(), after.end());
    std::set<LaunchModel::Operation> seen;
    if (!reaches(operation, operation, seen)) return;
    refused_.insert(operation);
    waits_for_.erase(operation);
  }
  [[nodiscard]] const std::set<LaunchModel::Operation>& refused() const { return refused_; }

 private:
  bool reaches(LaunchModel::Operation from, LaunchModel::Operation to, std::set<LaunchModel::Operation>& seen) {
    if (!seen.insert(from).second) return false;
    LaunchModel::Operations next(waits_for_[from].begin(), waits_for_[from].end());
    if (from.second > 1) next.emplace_back(from.first, from.second - 1);
    return std::ranges::any_of(next, [&](const auto& one) { return one == to || reaches(one, to, seen); });
  }

  std::map<LaunchModel::Operation, std::set<LaunchModel::Operation>> waits_for_;
  std::set<LaunchModel::Operation> refused_;
};

std::size_t some_devices(std::mt19937_64& random) { return 2 + random() % 7; }

}  // namespace

TEST_CASE("L10: no order of submissions on overlapping communicators deadlocks the devices") {
  int deadlocks_without = 0;
  REQUIRE(rc::check([&](std::uint64_t seed) {
    std::mt19937_64 random(seed);
    const Program program =
        random_program(random, some_devices(random), 1 + random() % 8, 1 + static_cast<int>(random() % 8));
    Run run(program);
    for (const Submission& submission : program.submissions) run.submit(submission);
    RC_ASSERT(run.launched() == program.submissions.size());
    RC_ASSERT(run.answered() == program.submissions.size());
    RC_ASSERT(run.in_order());
    RC_ASSERT(run.stuck() == 0U);
    if (stuck_without_sequencer(program) > 0) ++deadlocks_without;
  }));
  CHECK(deadlocks_without > 10);  // The model sees a deadlock where there is one.
}

TEST_CASE("L2: mismatches, aborts and devices that leave: complete operations stay, each launch is answered once") {
  REQUIRE(rc::check([](std::uint64_t seed) {
    std::mt19937_64 random(seed);
    Program program =
        random_program(random, some_devices(random), 1 + random() % 8, 1 + static_cast<int>(random() % 8));
    if (random() % 2 == 0) add_waits(random, program, 4);
    Run run(program);
    for (const Submission& submission : program.submissions) {
      run.submit(submission, random() % 16 == 0 ? 2 : 1);
      if (random() % 64 == 0) run.abort(random() % program.communicators.size());
      if (random() % 128 == 0) run.leave(program.device_of(submission));
    }
    run.close();
    RC_ASSERT(run.answered() == run.submitted());
    RC_ASSERT(run.in_order());
    RC_ASSERT(run.stuck() == 0U);
  }));
}

TEST_CASE("L10: devices that run one list of operations, and wait for some, neither deadlock nor see a ring") {
  int deadlocks_without = 0;
  REQUIRE(rc::check([&](std::uint64_t seed) {
    std::mt19937_64 random(seed);
    Program program =
        agreed_program(random, some_devices(random), 1 + random() % 8, 1 + static_cast<int>(random() % 8));
    add_waits(random, program, 1 + static_cast<unsigned>(random() % 8));
    Run run(program);
    Run without(program, false);
    for (const Submission& submission : program.submissions) {
      run.submit(submission);
      without.submit(submission);
    }
    RC_ASSERT(run.launched() == program.submissions.size());
    RC_ASSERT(run.in_order());
    RC_ASSERT(run.stuck() == 0U);
    if (without.stuck() > 0) ++deadlocks_without;
  }));
  CHECK(deadlocks_without > 10);  // Nor would it do without the rule.
}

TEST_CASE("L10: where ranks wait in rings, these are refused, all are answered and the devices finish") {
  std::size_t in_rings = 0;
  std::size_t launched = 0;
  REQUIRE(rc::check([&](std::uint64_t seed) {
    std::mt19937_64 random(seed);
    Program program =
        random_program(random, some_devices(random), 1 + random() % 8, 1 + static_cast<int>(random() % 8));
    add_waits(random, program, 1 + static_cast<unsigned>(random() % 8));
    Run run(program);
    Rings rings;
    for (const Submission& submission : program.submissions)
      rings.submit({submission.communicator, run.submit(submission)}, submission.after);
    RC_ASSERT(run.answered() == program.submissions.size());
    RC_ASSERT(run.refused() == rings.refused());
    RC_ASSERT(run.launched() + run.in_rings() == program.submissions.size());
    RC_ASSERT(run.in_order());
    RC_ASSERT(run.stuck() == 0U);
    in_rings += run.in_rings();
    launched += run.launched();
  }));
  CHECK(in_rings > 100);
  CHECK(launched > 100);
}

TEST_CASE("L10: without waits told, A before B on a device where A waits for B is a deadlock") {
  // Device 0 does A, B; device 1 does B, its compute stream waits for it, A.
  Program program = [] {
    std::mt19937_64 random(0);
    return random_communicators(random, 2, 2);
  }();
  program.submissions = {{0, 0}, {1, 1}, {0, 1, {{1, 1}}}, {1, 0}};
  const bool told = GENERATE(false, true);
  Run run(program, told);
  for (const Submission& submission : program.submissions) run.submit(submission);
  CHECK(run.launched() == 4);
  CHECK(run.stuck() == (told ? 0 : 4));
}

TEST_CASE("L10: eight threads that submit in any order do not deadlock the devices") {
  const bool disturbed = GENERATE(false, true);
  const bool agreed = GENERATE(false, true);
  std::mt19937_64 random(GENERATE(range(1U, 5U)));
  Program program = agreed ? agreed_program(random, 8, 6, 60) : random_program(random, 8, 6, 60);
  add_waits(random, program, 8);
  Run run(program);
  run_in_threads(program, run, disturbed ? 64 : 0);
  if (!disturbed) {
    CHECK(run.launched() + run.in_rings() == program.submissions.size());
    if (agreed) CHECK(run.in_rings() == 0);
  }
  CHECK(run.launched() > 0);
  CHECK(run.answered() == program.submissions.size());
  CHECK(run.in_order());
  CHECK(run.stuck() == 0);
}
