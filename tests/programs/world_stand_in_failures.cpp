// What the processes of a world of GPUs are notified of when one of them fails, and that the others continue, also when
// a process dies while NCCL creates communicators. The driver and NCCL are stand-ins.

#include <coxswain/tests/programs/world_gpu_failures.hpp>

int main(int count, char** arguments) {
  using namespace cox::test;
  if (count > 1) return run_scenario(arguments[2]);
  FailureTest test(3);
  test.run_all(1000);
  for (const std::string name :
       {"killed in the creation", "killed in the split", "killed while the ranks are connected",
        "killed before the processes exchange memory", "killed before it passes its memory on",
        "killed before it has the memory of others", "killed before the processes agree about memory"})
    test.run(name, {}, [](WorldProcesses&) {}, test.survivors(name, {FailureKind::ProcessGone}, 0), {1});
  test.run(
      "poison that spreads", {}, [](WorldProcesses&) {},
      [&](std::size_t, const std::string& output) {
        test.expect(FailureTest::line_of(output, "sum").names(first_cause), "spread: all are told the first cause");
        test.expect(FailureTest::line_of(output, "again").text == "nothing", "spread: the communicator goes on");
      });
  test.run("stopped before it passes its memory on", detect_silence(), [](WorldProcesses&) {},
           test.survivors("stopped while it exports", {FailureKind::ProcessSilent, FailureKind::ProcessGone}, 0), {1});
  test.run(
      "a kernel that one process cannot load", {}, [](WorldProcesses&) {},
      [&](std::size_t, const std::string& output) {
        const FailureTest::Line sum = FailureTest::line_of(output, "sum");
        test.expect(sum.is(FailureKind::RankFailed) && sum.names("cox_one_shot_lines_f32_sum"),
                    "a kernel that cannot be loaded: all get the cause");
        test.expect(FailureTest::line_of(output, "integers").text == "nothing", "and the communicator goes on");
      });
  test.run_without_order("in the order of ranks for one process", {},
                         "collectives.reproducible is not the same in all processes");
  const std::string late = "poison after sums of one process";
  test.run(late, {}, [](WorldProcesses&) {}, test.poisoned(late));
  return test.result();
}
