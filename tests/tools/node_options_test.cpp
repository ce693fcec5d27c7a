#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/temporary_file.hpp>

#include <coxswain/tools/cox/argument_error.hpp>
#include <coxswain/tools/cox/nodes/node_options.hpp>

#include <sys/stat.h>
#include <chrono>
#include <string>

using Catch::Matchers::ContainsSubstring;
using cox::detail::LauncherVariables;
using cox::test::TemporaryFile;
using cox::tools::ArgumentError;
using cox::tools::NodeArguments;
using cox::tools::NodeOptions;
using cox::tools::parse_node_options;

namespace {

const std::string secret_text = "00112233445566778899aabbccddeeff";
const LauncherVariables by_hand{{"COX_WORLD_TOKEN", secret_text}};
const LauncherVariables by_srun{{"COX_WORLD_TOKEN", secret_text},     {"SLURM_NODEID", "1"}, {"SLURM_NNODES", "2"},
                                {"SLURM_STEP_NODELIST", "node[7-8]"}, {"SLURM_JOB_ID", "5"}, {"SLURM_STEP_ID", "0"}};

NodeOptions parse(const NodeArguments& arguments, const LauncherVariables& variables = by_hand, bool by_slurm = true) {
  return parse_node_options(arguments, by_slurm, variables);
}

}  // namespace

TEST_CASE("The place of an agent is what its options say") {
  const NodeOptions options = parse({.nodes = "3", .node = "2", .leader = "node7:29400", .join_within = "30s"});
  CHECK(options.nodes == 3);
  CHECK(options.node == 2);
  CHECK(options.host == "node7");
  CHECK(options.port == 29'400);
  CHECK(options.join_within == std::chrono::seconds(30));
  CHECK(cox::detail::to_hexadecimal(options.token) == secret_text);
  CHECK(parse({.nodes = "2", .node = "1", .leader = "[fe80::1]:1"}).host == "fe80::1");
  CHECK(parse({.nodes = "2", .node = "0", .leader = "localhost:0"}).port == 0);
}

TEST_CASE("Under srun the place of an agent is that of its task") {
  const NodeOptions options = parse({}, by_srun);
  CHECK(options.nodes == 2);
  CHECK(options.node == 1);
  CHECK(options.host == "node7");
  CHECK(options.port == 20'005);
  CHECK(parse({.leader = ":29400"}, by_srun).port == 29'400);
  CHECK(parse({.leader = ":29400"}, by_srun).host == "node7");
  CHECK(parse({.nodes = "1"}, by_srun).nodes == 1);
  CHECK(parse({}, by_srun, false).nodes == 1);
  CHECK(parse({.nodes = "2"}, by_srun, false).node == 1);
  CHECK_THROWS_WITH(parse({.nodes = "3"}, by_srun), ContainsSubstring("--node K"));
}

TEST_CASE("One node needs no options of several") {
  CHECK(parse({}).nodes == 1);
  CHECK(parse({.nodes = "1", .node = "0", .leader = "node7:1"}, {}).nodes == 1);
  CHECK_THROWS_WITH(parse({.leader = "node7:1"}), ContainsSubstring("are for --nodes 2 or more"));
}

TEST_CASE("Options of several nodes that are missing or malformed are named") {
  CHECK_THROWS_WITH(parse({.nodes = "2"}), ContainsSubstring("--node K"));
  CHECK_THROWS_WITH(parse({.nodes = "2", .node = "0"}), ContainsSubstring("--leader HOST:PORT"));
  for (const char* leader : {"node7", "node7:", "node7:x", "node7:65536", "node7:0", "fe80::1:5"}) {
    CAPTURE(leader);
    CHECK_THROWS_WITH(parse({.nodes = "2", .node = "1", .leader = leader}), ContainsSubstring("--leader"));
  }
  CHECK_THROWS_WITH(parse({.nodes = "2", .node = "2", .leader = "a:1"}), ContainsSubstring("--node"));
  CHECK_THROWS_WITH(parse({.nodes = "0"}), ContainsSubstring("--nodes"));
  CHECK_THROWS_WITH(parse({.nodes = "2", .node = "1", .leader = "a:1", .join_within = "soon"}),
                    ContainsSubstring("--join-within"));
}

TEST_CASE("Agents need a secret, which no error shows") {
  const NodeArguments two{.nodes = "2", .node = "1", .leader = "a:1"};
  CHECK_THROWS_WITH(parse(two, {}), ContainsSubstring("set COX_WORLD_TOKEN to 32 hexadecimal digits"));
  CHECK_THROWS_WITH(parse(two, {{"COX_WORLD_TOKEN", "secret"}}),
                    ContainsSubstring("COX_WORLD_TOKEN: expected 32") && !ContainsSubstring("secret"));
  CHECK_THROWS_AS(parse(two, {{"COX_WORLD_TOKEN", std::string(32, '0')}}), ArgumentError);

  const TemporaryFile file("ffeeddccbbaa99887766554433221100\n");
  NodeArguments by_file = two;
  by_file.token_file = file.path();
  REQUIRE(::chmod(file.path().c_str(), 0600) == 0);
  CHECK(cox::detail::to_hexadecimal(parse(by_file).token) == "ffeeddccbbaa99887766554433221100");
  REQUIRE(::chmod(file.path().c_str(), 0640) == 0);
  CHECK_THROWS_WITH(parse(by_file), ContainsSubstring("can be accessed by others"));
  by_file.token_file = "/nowhere/token";
  CHECK_THROWS_WITH(parse(by_file), ContainsSubstring("No such file"));
  const TemporaryFile malformed("secret");
  REQUIRE(::chmod(malformed.path().c_str(), 0600) == 0);
  by_file.token_file = malformed.path();
  CHECK_THROWS_WITH(parse(by_file), ContainsSubstring("expected 32") && !ContainsSubstring("secret"));
}
