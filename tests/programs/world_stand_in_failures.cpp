// What the processes of a world of GPUs are notified of when one of them fails, and that the others continue, also when
// a process dies while NCCL creates communicators. The driver and NCCL are stand-ins.

#include <coxswain/tests/programs/world_gpu_failures.hpp>

int main(int count, char** arguments) {
  using namespace cox::test;
  if (count > 1) return run_scenario(arguments[2]);
  FailureTest test(3);
  test.run_all(1000);
  for (const std::string name :
       {"killed in the creation", "killed in the split", "killed while the ranks are connected"})
    test.run(name, {}, [](WorldProcesses&) {}, test.survivors(name, {FailureKind::ProcessGone}, 0), {1});
  test.run(
      "poison that spreads", {}, [](WorldProcesses&) {},
      [&](std::size_t, const std::string& output) {
        test.expect(FailureTest::line_of(output, "sum").names(first_cause), "spread: all are told the first cause");
        test.expect(FailureTest::line_of(output, "again").text == "nothing", "spread: the communicator goes on");
      });
  for (const std::string name : {"in the order of ranks", "in the order of ranks for one process"})
    test.run(
        name, {}, [](WorldProcesses& world) { FailureTest::let_go(world, 3); },
        [&](std::size_t, const std::string& output) {
          const FailureTest::Line sum = FailureTest::line_of(output, "sum");
          test.expect(sum.is(FailureKind::RankFailed) && sum.names("need all GPUs in one process"), name + ": refused");
          test.expect(FailureTest::line_of(output, "integers").text == "nothing", name + ": the communicator goes on");
        });
  const std::string late = "poison after sums of one process";
  test.run(late, {}, [](WorldProcesses&) {}, test.poisoned(late));
  return test.result();
}
