#include <coxswain/collectives/discovery/launcher.hpp>
#include <coxswain/runtime/config/config_error.hpp>
#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <stdexcept>
#include <string>

using cox::ConfigError;
using cox::Rendezvous;
using cox::WorldOptions;
using cox::WorldPlace;
using cox::detail::LauncherVariables;
using cox::detail::PmixJob;
using cox::test::kind_of;
using cox::test::mentions;
using cox::test::message_of;
using Source = WorldPlace::Source;
using Refusal = ConfigError::Kind;

namespace {

PmixJob no_pmix() { throw std::logic_error("PMIx was asked"); }

/// PMIx of process 2 of 4.
PmixJob third_of_four() {
  return {.name = "job1", .process = 2, .processes = 4, .local_process = 0, .local_processes = 2};
}

WorldPlace place_of(const LauncherVariables& variables, const WorldOptions& options = {}) {
  return cox::detail::discover(options, variables, no_pmix);
}

const LauncherVariables own{
    {"COX_WORLD", "tcp://10.0.0.1:2950"}, {"COX_WORLD_PROCESS", "1"}, {"COX_WORLD_PROCESSES", "3"}};

const LauncherVariables torch{{"RANK", "5"},
                              {"WORLD_SIZE", "8"},
                              {"LOCAL_RANK", "1"},
                              {"LOCAL_WORLD_SIZE", "4"},
                              {"MASTER_ADDR", "node1"},
                              {"MASTER_PORT", "29500"},
                              {"TORCHELASTIC_RUN_ID", "job7"},
                              {"TORCHELASTIC_RESTART_COUNT", "2"},
                              {"TORCHELASTIC_USE_AGENT_STORE", "True"}};

const LauncherVariables srun{{"SLURM_PROCID", "2"},
                             {"SLURM_NTASKS", "6"},
                             {"SLURM_LOCALID", "0"},
                             {"SLURM_NODEID", "1"},
                             {"SLURM_STEP_TASKS_PER_NODE", "2(x3)"},
                             {"SLURM_LAUNCH_NODE_IPADDR", "10.0.0.9"},
                             {"SLURM_JOB_ID", "123456"},
                             {"SLURM_STEP_ID", "0"}};

LauncherVariables with(LauncherVariables variables, const LauncherVariables& more) {
  for (const auto& [name, value] : more) variables[name] = value;
  return variables;
}

LauncherVariables without(LauncherVariables variables, const std::string& name) {
  variables.erase(name);
  return variables;
}

/// Checks that discovery refuses the variables, and that the text has all `parts`.
void check_refused(const LauncherVariables& variables, Refusal kind, std::initializer_list<std::string_view> parts) {
  const auto discover = [&] { (void)cox::detail::discover({}, variables, third_of_four); };
  INFO(message_of(discover));
  CHECK(kind_of<ConfigError>(discover) == kind);
  CHECK(mentions(message_of(discover), parts));
}

}  // namespace

TEST_CASE("Without a launcher there is a world of one process") {
  const WorldPlace place = place_of({});
  CHECK(place.source == Source::OneProcess);
  CHECK(place.process == 0);
  CHECK(place.processes == 1);
  CHECK(place.local_process == 0);
  CHECK(place.local_processes == 1);
  CHECK(place.rendezvous == Rendezvous{});
  CHECK(place.open_store({}) == nullptr);
}

TEST_CASE("Processes of an mpirun without PMIx are one world where COX_WORLD says") {
  const LauncherVariables meeting{{"COX_WORLD", "tcp://10.0.0.1:2950"}};
  const LauncherVariables hydra{
      {"PMI_RANK", "3"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};
  const LauncherVariables open_mpi{{"OMPI_COMM_WORLD_RANK", "3"},
                                   {"OMPI_COMM_WORLD_SIZE", "4"},
                                   {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                   {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
  for (const LauncherVariables& variables : {hydra, open_mpi}) {
    const WorldPlace place = place_of(with(variables, meeting));
    CHECK(place.source == Source::Mpi);
    CHECK(place.process == 3);
    CHECK(place.processes == 4);
    CHECK(place.local_process == 1);
    CHECK(place.local_processes == 2);
    CHECK(to_string(place.rendezvous) == "tcp://10.0.0.1:2950");
    check_refused(variables, Refusal::Conflict, {"SIZE is \"4\"", "COX_WORLD is not set", "COX_WORLD_PROCESSES to 1"});
  }
  CHECK(place_of({{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}).processes == 1);
  CHECK(place_of(with(hydra, {{"COX_WORLD_PROCESS", "0"}, {"COX_WORLD_PROCESSES", "1"}})).processes == 1);
  CHECK(place_of(with(with(hydra, srun), meeting)).source == Source::Mpi);  // its processes are steps of Slurm
  const LauncherVariables pmi{{"PMI_RANK", "2"}, {"PMI_SIZE", "6"}};
  CHECK(place_of(with(pmi, srun)).source == Source::Slurm);  // srun --mpi=pmi2
  check_refused(with(with(pmi, srun), {{"PMI_SIZE", "4"}}), Refusal::Conflict, {"PMI_SIZE", "SLURM_NTASKS"});
}

TEST_CASE("Options come before all variables, and what they leave out is taken from those") {
  const WorldPlace place = place_of(with(torch, own), {.rendezvous = "tcp://10.0.0.2:1", .process = 0, .processes = 2});
  CHECK(place.source == Source::Options);
  CHECK(place.process == 0);
  CHECK(place.processes == 2);
  CHECK(to_string(place.rendezvous) == "tcp://10.0.0.2:1");
  CHECK_FALSE(place.local_process);
  const WorldPlace other =
      place_of(with(own, {{"COX_WORLD_RUN", "r"}, {"COX_WORLD_RESTART", "4"}}), {.process = 0, .processes = 2});
  CHECK(to_string(other.rendezvous) == "tcp://10.0.0.1:2950");
  CHECK(other.run == "r");
  CHECK(other.restart == 4);
  CHECK(place_of(own, {.local_process = 3, .local_processes = 4, .run = "x", .restart = 9}).restart == 9);
}

TEST_CASE("Our own variables come before those of launchers") {
  LauncherVariables variables = with(with(torch, srun), own);
  variables["COX_WORLD_TOKEN"] = "0123456789abcdef0123456789ABCDEF";
  variables["COX_WORLD_LOCAL_PROCESS"] = "1";
  variables["COX_WORLD_LOCAL_PROCESSES"] = "2";
  const WorldPlace place = place_of(variables);
  CHECK(place.source == Source::Variables);
  CHECK(place.process == 1);
  CHECK(place.processes == 3);
  CHECK(place.local_process == 1);
  CHECK(place.local_processes == 2);
  CHECK(place.run.empty());
  CHECK(place.token == cox::detail::parse_token("0123456789abcdef0123456789abcdef"));
}

TEST_CASE("On a loopback address all processes are on this host") {
  const WorldPlace place = place_of(with(own, {{"COX_WORLD", "tcp://127.0.0.1:2950"}}));
  CHECK(place.local_process == 1);
  CHECK(place.local_processes == 3);
  CHECK_FALSE(place_of(own).local_process);
}

TEST_CASE("torchrun numbers the processes, and its agent holds the store") {
  const WorldPlace place = place_of(torch);
  CHECK(place.source == Source::Torchrun);
  CHECK(place.process == 5);
  CHECK(place.processes == 8);
  CHECK(place.local_process == 1);
  CHECK(place.local_processes == 4);
  CHECK(place.run == "job7");
  CHECK(place.restart == 2);
  CHECK(to_string(place.rendezvous) == "torch://node1:29500");
}

TEST_CASE("Without a store of the agent, process 0 serves its own") {
  CHECK(to_string(place_of(with(torch, {{"TORCHELASTIC_USE_AGENT_STORE", "False"}})).rendezvous) ==
        "tcp://node1:29500");
  CHECK(to_string(place_of(without(torch, "TORCHELASTIC_USE_AGENT_STORE")).rendezvous) == "tcp://node1:29500");
}

TEST_CASE("COX_WORLD and COX_WORLD_RUN may be set beside a launcher that numbers the processes") {
  const WorldPlace place = place_of(with(torch, {{"COX_WORLD", "file:/shared"}, {"COX_WORLD_RUN", "mine"}}));
  CHECK(place.source == Source::Torchrun);
  CHECK(to_string(place.rendezvous) == "file:/shared");
  CHECK(place.run == "mine");
  CHECK(place_of(with(torch, {{"COX_WORLD", "file:/shared"}})).run == "job7");
}

TEST_CASE("PMIx is asked for the count") {
  const WorldPlace place = cox::detail::discover({}, {{"PMIX_RANK", "2"}}, third_of_four);
  CHECK(place.source == Source::Pmix);
  CHECK(place.process == 2);
  CHECK(place.processes == 4);
  CHECK(place.local_process == 0);
  CHECK(place.local_processes == 2);
  CHECK(place.run == "job1");
  CHECK(place.rendezvous.kind == Rendezvous::Kind::Pmix);
}

TEST_CASE("Under srun process 0 serves at a port that follows from the job and the step") {
  const WorldPlace place = place_of(srun);
  CHECK(place.source == Source::Slurm);
  CHECK(place.process == 2);
  CHECK(place.processes == 6);
  CHECK(place.local_process == 0);
  CHECK(place.local_processes == 2);
  CHECK(place.run == "slurm.123456.0");
  CHECK(place.restart == 0);
  CHECK(to_string(place.rendezvous) == "tcp://10.0.0.9:23456");
  CHECK(place_of(with(srun, {{"SLURM_STEP_ID", "1"}})).rendezvous.port == 23'557);
  CHECK(place_of(with(srun, {{"SLURM_STEP_NUM_TASKS", "4"}})).processes == 4);
  CHECK(place_of(with(srun, {{"SLURM_RESTART_COUNT", "3"}})).restart == 3);
}

TEST_CASE("The processes on this host follow from Slurm's list of tasks") {
  for (const auto& [list, node, count] : {std::tuple("2(x3),1", "2", 2), std::tuple("2(x3),1", "3", 1),
                                          std::tuple("3,2,1", "1", 2), std::tuple("6", "0", 6)})
    CHECK(place_of(with(srun, {{"SLURM_STEP_TASKS_PER_NODE", list}, {"SLURM_NODEID", node}})).local_processes == count);
  for (const char* const list : {"", "x", "2", "2(x1", "0(x9)", "2(xy)"})
    CHECK_FALSE(place_of(with(srun, {{"SLURM_STEP_TASKS_PER_NODE", list}})).local_processes);
}

TEST_CASE("A batch script of Slurm is a world of one, although it has a number and a count") {
  CHECK(place_of(without(srun, "SLURM_STEP_ID")).source == Source::OneProcess);
}

TEST_CASE("A world of one process of a launcher needs no rendezvous") {
  CHECK(place_of({{"RANK", "0"}, {"WORLD_SIZE", "1"}}).rendezvous == Rendezvous{});
  const WorldPlace place = place_of(with(torch, {{"RANK", "0"}, {"WORLD_SIZE", "1"}}));
  CHECK(place.source == Source::Torchrun);
  CHECK(place.open_store({}) == nullptr);
}

TEST_CASE("A launcher that another one has started wins, if it marks its processes") {
  CHECK(place_of(with(srun, torch)).source == Source::Torchrun);
  const WorldPlace place = cox::detail::discover(
      {}, with(srun, {{"PMIX_RANK", "2"}, {"OMPI_COMM_WORLD_RANK", "2"}, {"SLURM_PROCID", "1"}}), third_of_four);
  CHECK(place.source == Source::Pmix);
  CHECK(place.processes == 4);
}

TEST_CASE("Launchers that agree are one launcher") {
  const LauncherVariables by_hand{{"RANK", "2"}, {"WORLD_SIZE", "6"}, {"MASTER_ADDR", "node1"}, {"MASTER_PORT", "1"}};
  CHECK(place_of(with(srun, by_hand)).source == Source::Torchrun);
  const WorldPlace place =
      cox::detail::discover({}, with(srun, {{"PMIX_RANK", "2"}, {"SLURM_NTASKS", "4"}}), third_of_four);
  CHECK(place.source == Source::Pmix);
}

TEST_CASE("Launchers that disagree are refused, and both variables are named with their values") {
  const LauncherVariables by_hand{{"RANK", "3"}, {"WORLD_SIZE", "6"}, {"MASTER_ADDR", "node1"}, {"MASTER_PORT", "1"}};
  check_refused(with(srun, by_hand), Refusal::Conflict, {"RANK is \"3\"", "SLURM_PROCID is \"2\""});
  check_refused(with(srun, with(by_hand, {{"RANK", "2"}, {"WORLD_SIZE", "4"}})), Refusal::Conflict,
                {"WORLD_SIZE is \"4\"", "SLURM_NTASKS is \"6\""});
  check_refused(with(by_hand, {{"PMIX_RANK", "2"}}), Refusal::Conflict, {"RANK is \"3\"", "PMIX_RANK is \"2\""});
  check_refused(with(srun, {{"PMIX_RANK", "2"}}), Refusal::Conflict, {"4 processes", "SLURM_NTASKS is \"6\""});
  check_refused({{"PMIX_RANK", "1"}}, Refusal::Conflict, {"PMIX_RANK is \"1\"", "process 2"});
}

TEST_CASE("A number without its count is refused, and so is a count without its number") {
  for (const auto& [number, count] :
       {std::pair("COX_WORLD_PROCESS", "COX_WORLD_PROCESSES"), std::pair("RANK", "WORLD_SIZE")}) {
    check_refused({{number, "1"}}, Refusal::Conflict,
                  {std::string(number) + " is \"1\"", std::string(count) + " is not set"});
    check_refused({{count, "2"}}, Refusal::Conflict,
                  {std::string(count) + " is \"2\"", std::string(number) + " is not set"});
  }
  check_refused(without(srun, "SLURM_NTASKS"), Refusal::Conflict, {"SLURM_PROCID is \"2\"", "SLURM_NTASKS is not set"});
  check_refused(without(srun, "SLURM_JOB_ID"), Refusal::Conflict, {"SLURM_JOB_ID is not set"});
  check_refused(without(torch, "MASTER_PORT"), Refusal::Conflict,
                {"MASTER_ADDR is \"node1\"", "MASTER_PORT is not set"});
}

TEST_CASE("A number that is not less than its count is refused") {
  check_refused(with(own, {{"COX_WORLD_PROCESS", "3"}}), Refusal::OutOfRange,
                {"COX_WORLD_PROCESS is \"3\"", "COX_WORLD_PROCESSES is \"3\""});
  check_refused(with(torch, {{"RANK", "9"}}), Refusal::OutOfRange, {"RANK is \"9\"", "WORLD_SIZE is \"8\""});
  check_refused(with(torch, {{"LOCAL_RANK", "4"}}), Refusal::OutOfRange,
                {"LOCAL_RANK is \"4\"", "LOCAL_WORLD_SIZE is \"4\""});
}

TEST_CASE("Malformed values are refused with their variable") {
  for (const char* const wrong : {"x", "1x", " 1", "-1", "1.5", "0x1"})
    check_refused(with(own, {{"COX_WORLD_PROCESS", wrong}}), Refusal::Malformed,
                  {"COX_WORLD_PROCESS is \"" + std::string(wrong) + "\""});
  check_refused(with(own, {{"COX_WORLD_PROCESSES", "4097"}}), Refusal::OutOfRange, {"COX_WORLD_PROCESSES", "4096"});
  check_refused(with(own, {{"COX_WORLD_PROCESSES", "0"}}), Refusal::OutOfRange, {"COX_WORLD_PROCESSES"});
  check_refused(with(own, {{"COX_WORLD_RESTART", "x"}}), Refusal::Malformed, {"COX_WORLD_RESTART is \"x\""});
  check_refused(with(own, {{"COX_WORLD", "node1"}}), Refusal::Malformed, {"COX_WORLD is \"node1\""});
  check_refused(with(own, {{"COX_WORLD_RUN", std::string(129, 'r')}}), Refusal::OutOfRange, {"COX_WORLD_RUN", "128"});
  check_refused(with(torch, {{"MASTER_PORT", "0"}}), Refusal::OutOfRange, {"MASTER_PORT is \"0\""});
  check_refused(with(torch, {{"TORCHELASTIC_USE_AGENT_STORE", "maybe"}}), Refusal::Malformed,
                {"TORCHELASTIC_USE_AGENT_STORE is \"maybe\""});
  check_refused({{"PMIX_RANK", "x"}}, Refusal::Malformed, {"PMIX_RANK is \"x\""});
}

TEST_CASE("A token that is none is refused without being shown") {
  const LauncherVariables variables = with(own, {{"COX_WORLD_TOKEN", "secret"}});
  check_refused(variables, Refusal::Malformed, {"COX_WORLD_TOKEN", "6 letters"});
  CHECK_FALSE(mentions(message_of([&] { (void)place_of(variables); }), {"secret"}));
}

TEST_CASE("Processes that cannot find each other are refused") {
  check_refused(without(own, "COX_WORLD"), Refusal::Conflict, {"COX_WORLD_PROCESSES is \"3\"", "COX_WORLD is not set"});
  check_refused({{"COX_WORLD", "tcp://10.0.0.1:1"}}, Refusal::Conflict,
                {"tcp://10.0.0.1:1", "COX_WORLD_PROCESS is not set"});
  check_refused(with(own, {{"COX_WORLD", "file:/shared"}}), Refusal::Conflict,
                {"COX_WORLD is \"file:/shared\"", "COX_WORLD_RUN is not set"});
  check_refused(without(srun, "SLURM_LAUNCH_NODE_IPADDR"), Refusal::Conflict, {"SLURM_NTASKS is \"6\"", "COX_WORLD"});
}

TEST_CASE("Options that are incomplete or malformed are named") {
  const auto refusal = [](const WorldOptions& options) { return message_of([&] { (void)place_of({}, options); }); };
  CHECK(mentions(refusal({.process = 1}), {"WorldOptions::process is 1", "WorldOptions::processes is not set"}));
  CHECK(mentions(refusal({.process = 2, .processes = 2}), {"WorldOptions::process is 2", "processes is 2"}));
  CHECK(mentions(refusal({.rendezvous = "x", .process = 1, .processes = 2}), {"WorldOptions::rendezvous is \"x\""}));
  CHECK(mentions(refusal({.process = 1, .processes = 2}), {"WorldOptions::processes is 2", "COX_WORLD is not set"}));
  CHECK(
      mentions(refusal({.rendezvous = "pmix", .process = 1, .processes = 2, .token = "abc"}), {"WorldOptions::token"}));
}
