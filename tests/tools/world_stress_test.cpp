// cox stress in a world, and cox stress --world.
#include <coxswain/tools/cox/world_stress/world_fault.hpp>
#include <coxswain/tools/cox/world_stress/world_round.hpp>

#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/temporary_folder.hpp>
#include <coxswain/tests/tools/command.hpp>
#include <coxswain/tests/tools/shell.hpp>

#include <coxswain/tools/cox/argument_error.hpp>

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <utility>

using Catch::Matchers::ContainsSubstring;
using namespace cox::stress;
using cox::test::TemporaryFolder;
using cox::tools::Command;
using cox::tools::Shell;

namespace {

/// The line with the digest of a run of four devices in so many processes.
std::string digest_of(std::size_t processes, const std::string& arguments) {
  const Shell run = Shell::run("$COX run --processes " + std::to_string(processes) + " -- $COX stress --devices host:" +
                               std::to_string(4 / processes) + " --clients 3 " + arguments);
  CAPTURE(run.output);
  CHECK(run.code == 0);
  const std::size_t at = run.output.find("digest of all results: ");
  REQUIRE(at != std::string::npos);
  return run.output.substr(at, run.output.find('\n', at) - at);
}

}  // namespace

TEST_CASE("The results of cox stress have the same bits in one, two and four processes") {
  const std::string arguments = "--rounds 300 --seed 7";
  const std::string one = digest_of(1, arguments);
  CHECK(digest_of(2, arguments) == one);
  CHECK(digest_of(4, arguments) == one);
  CHECK(digest_of(2, "--rounds 300 --seed 8") != one);
}

TEST_CASE("Faults of collectives are the same in all processes of a world, and explain the errors of each") {
  const std::string arguments =
      "--rounds 200 --seed 9 --fault throw=0.01,cancel=0.01,expire=0.01,stall=0.01,mismatch=0.03,poison=0.03";
  CHECK(digest_of(4, arguments) == digest_of(1, arguments));
}

TEST_CASE("All processes of a world end a timed stress with the same round") {
  const Shell run = Shell::run("$COX run --processes 3 -- $COX stress --devices host:1 --seconds 0.5 --clients 2");
  CAPTURE(run.output);
  CHECK(run.code == 0);
  CHECK_THAT(run.output, ContainsSubstring("p0/host:0 p1/host:0 p2/host:0") && ContainsSubstring("\nok\n"));
  CHECK_THAT(run.output, !ContainsSubstring("digest"));
}

TEST_CASE("cox stress joins the world of torchrun's variables") {
  const TemporaryFolder folder;
  const std::string variables =
      "export WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=1 "
      "TORCHELASTIC_RUN_ID=stress TORCHELASTIC_RESTART_COUNT=0 COX_WORLD=file:" +
      folder.path().string() + "; ";
  const std::string stress = "$COX stress --devices host:1 --rounds 100 --seed 3 --clients 2";
  const Shell run = Shell::run(variables + "RANK=1 LOCAL_RANK=1 " + stress + " --quiet & RANK=0 LOCAL_RANK=0 " +
                               stress + "; code=$?; wait $! && exit $code");
  CAPTURE(run.output);
  CHECK(run.code == 0);
  CHECK_THAT(run.output, ContainsSubstring("p0/host:0 p1/host:0") && ContainsSubstring("digest of all results"));
}

TEST_CASE("Arguments of cox stress that mean nothing in a world are refused") {
  for (const std::string argument :
       {"--operations 100", "--fault missing=0.1", "--fault leave=0.1", "--mix submit=1"}) {
    const Shell run = Shell::run("$COX run --processes 2 --grace 1s -- $COX stress --devices host:1 " + argument);
    CAPTURE(run.output);
    CHECK(run.code == 2);
  }
  CHECK(static_cast<int>(Command::run({"stress", "--devices", "host:1", "--rounds", "5"}).code) == 2);
  CHECK(static_cast<int>(Command::run({"stress", "--rounds", "5", "--seconds", "1"}).code) == 2);
}

TEST_CASE("L16: processes of a world fail at each message of the protocol, and the others are notified in time") {
  const Shell run = Shell::run("$COX stress --world 23 --seed 3 --fault kill=0.7,stop=0.3");
  CAPTURE(run.output);
  CHECK(run.code == 0);
  CHECK_THAT(run.output, ContainsSubstring("23 rounds, ") && ContainsSubstring(" 0 wrong\nok\n"));
}

TEST_CASE("L16: connections of a world are slow, or are cut, and the processes are notified in time") {
  const Shell run = Shell::run("$COX stress --world 3 --seed 4 --fault slow=0.3,cut=0.7");
  CAPTURE(run.output);
  CHECK(run.code == 0);
  CHECK_THAT(run.output, ContainsSubstring(" 0 wrong\nok\n"));
}

TEST_CASE("L16: a connection for data of a world forwards nothing any more, and the processes are notified in time") {
  const WorldStressOptions options;
  WorldFaultPlan plan{.fault = WorldFault::Cut, .count = 12, .victim = 1, .peer = 2, .cut = Cut::Silent};
  while (plan.at().name != "Inputs") ++plan.state;
  const auto round = [&] {
    return run_world_round(options, plan, {COX_PROGRAM, "stress", "--world", "1", "--world-member"});
  };
  WorldRoundOutcome outcome = round();
  for (int again = 0; again < 20 && outcome.is_held_up; ++again) outcome = round();
  CHECK(outcome.wrong == "");
  CHECK_FALSE(outcome.notified.empty());
}

TEST_CASE("A stress of worlds finds a process that reports the wrong error, or does not continue") {
  for (const std::string flaw : {"error", "rest"}) {
    const Shell run = Shell::run("$COX stress --world 4 --seed 5 --fault kill --world-flaw " + flaw);
    CAPTURE(run.output);
    CHECK(run.code == 1);
    CHECK_THAT(run.output, ContainsSubstring("the first wrong one: ") && ContainsSubstring("failed\n"));
  }
}

TEST_CASE("Arguments that a stress of worlds cannot have are refused") {
  for (const std::string argument : {"--fault throw=0.1", "--fault kill=0", "--processes 2", "--seconds 3"})
    CHECK(Shell::run("$COX stress --world 3 " + argument).code == 2);
  CHECK(static_cast<int>(Command::run({"stress", "--world", "0"}).code) == 2);
}

TEST_CASE("Successive rounds of a stress of worlds go through all states, with faults by their weights") {
  const auto rates = WorldFaultRates::parse("--fault", "kill=0.5,cut=0.5");
  std::set<std::pair<std::size_t, WorldFault>> seen;
  for (std::uint64_t round = 0; round < 2000; ++round) {
    const WorldFaultPlan plan = plan_world_fault(rates, 1, round, 4);
    CHECK(plan.state == round % protocol_states().size());
    CHECK((plan.fault == WorldFault::Kill || plan.fault == WorldFault::Cut));
    CHECK(plan.victim < 4);
    CHECK(plan.count <= plan.at().most);
    if (plan.fault == WorldFault::Cut) CHECK(plan.peer != plan.victim);
    seen.emplace(plan.state, plan.fault);
  }
  CHECK(seen.size() > 2 * protocol_states().size() - 4);  // a second fault is never a cut
  CHECK_THROWS_AS(WorldFaultRates::parse("--fault", "leave=0.5"), cox::tools::ArgumentError);
}
