#include <coxswain/tests/support/catch.hpp>

#include <coxswain/collectives/discovery/slurm_node.hpp>
#include <coxswain/runtime/config/config_error.hpp>

#include <string>

using Catch::Matchers::ContainsSubstring;
using cox::ConfigError;
using cox::detail::first_host;
using cox::detail::LauncherVariables;
using cox::detail::slurm_node;
using cox::detail::SlurmNode;

namespace {

const LauncherVariables srun_step{{"SLURM_NODEID", "1"},
                                  {"SLURM_NNODES", "3"},
                                  {"SLURM_STEP_TASKS_PER_NODE", "1(x3)"},
                                  {"SLURM_STEP_NODELIST", "node[07-09]"},
                                  {"SLURM_JOB_ID", "123456"},
                                  {"SLURM_STEP_ID", "0"}};

LauncherVariables changed(LauncherVariables variables, const char* name, const char* value) {
  variables[name] = value;
  return variables;
}

}  // namespace

TEST_CASE("The first host of a list of Slurm is that of node 0") {
  CHECK(first_host("node1") == "node1");
  CHECK(first_host("node1,node2") == "node1");
  CHECK(first_host("node[01-04,07],login") == "node01");
  CHECK(first_host("node[3,5]") == "node3");
  CHECK(first_host("rack[1-2]n[08-10].example.org,other") == "rack1n08.example.org");
  CHECK(first_host("").empty());
  CHECK(first_host(",node").empty());
  CHECK(first_host("node[").size() <= 5);
  CHECK(first_host("node[01").starts_with("node01"));
}

TEST_CASE("A task of srun knows its node") {
  CHECK(slurm_node(srun_step) == SlurmNode{.node = 1, .nodes = 3, .first_host = "node07", .port = 23'456});
  CHECK(slurm_node(changed(srun_step, "SLURM_STEP_NUM_NODES", "2"))->nodes == 2);
  CHECK(slurm_node(changed(srun_step, "SLURM_STEP_NODELIST", ""))->first_host.empty());
  CHECK(slurm_node(changed(srun_step, "SLURM_STEP_ID", "1"))->port == 23'557);
}

TEST_CASE("A process that srun has not started has no node") {
  CHECK_FALSE(slurm_node({}));
  LauncherVariables batch = srun_step;
  batch.erase("SLURM_STEP_ID");
  CHECK_FALSE(slurm_node(batch));
}

TEST_CASE("Variables of Slurm that contradict each other are an error that names them") {
  CHECK_THROWS_WITH(slurm_node(changed(srun_step, "SLURM_NODEID", "3")),
                    ContainsSubstring("SLURM_NODEID is \"3\"") && ContainsSubstring("SLURM_NNODES is \"3\""));
  CHECK_THROWS_WITH(slurm_node(changed(srun_step, "SLURM_NODEID", "")), ContainsSubstring("SLURM_NODEID is not set"));
  CHECK_THROWS_AS(slurm_node(changed(srun_step, "SLURM_NODEID", "one")), ConfigError);
  CHECK_THROWS_WITH(
      slurm_node(changed(srun_step, "SLURM_STEP_TASKS_PER_NODE", "4(x3)")),
      ContainsSubstring("SLURM_STEP_TASKS_PER_NODE is \"4(x3)\"") && ContainsSubstring("--ntasks-per-node=1"));
  CHECK(slurm_node(changed(changed(srun_step, "SLURM_NODEID", "0"), "SLURM_STEP_TASKS_PER_NODE", "1,4(x2)")));
}
