#include <coxswain/tests/support/catch.hpp>

#include <coxswain/servers/cuda/peer/communication_routes.hpp>
#include <coxswain/servers/cuda/peer/peer_kernels.hpp>

#include <algorithm>
#include <string>

using namespace cox;
using namespace cox::detail;
using Catch::Matchers::ContainsSubstring;

namespace {

CommunicationFacts facts_of(std::size_t devices) {
  CommunicationFacts facts;
  for (std::size_t device = 0; device < devices; ++device) facts.devices.push_back("cuda:" + std::to_string(device));
  facts.peers.assign(devices, std::vector<CudaPeerFacts>(devices, {.access = true}));
  facts.nccl = "NCCL 2.28.9 (libnccl.so.2)";
  return facts;
}

}  // namespace

TEST_CASE("Where all GPUs reach each other small sums need no NCCL") {
  CHECK_FALSE(why_not_in_peer_memory(facts_of(3)));
  const auto ways = communication_routes(facts_of(3));
  REQUIRE(ways.size() == 7);
  CHECK(ways[1].what == "transfers between cuda:0 and cuda:2");
  CHECK_THAT(ways[1].route, ContainsSubstring("direct peer copy"));
  CHECK_THAT(ways[3].route, ContainsSubstring("at any size"));
  CHECK_THAT(ways[4].what, ContainsSubstring("all_reduce up to 8 MiB"));
  CHECK_THAT(ways[5].what, ContainsSubstring("broadcast up to 1 MiB"));
  for (const std::size_t way : {4U, 5U}) CHECK(ways[way].route == "kernel in peer memory");
  CHECK_THAT(ways[6].route, ContainsSubstring("NCCL 2.28.9"));
}

TEST_CASE("What keeps small sums out of peer memory is named") {
  auto facts = facts_of(3);
  std::string why;
  SECTION("a setting") {
    facts.peer_memory = false;
    why = "collectives.peer_memory";
  }
  SECTION("a pair without access") {
    facts.peers[2][1].access = false;
    why = "cuda:2 cannot access the memory of cuda:1";
    CHECK_THAT(communication_routes(facts)[2].route, ContainsSubstring("through host memory"));
  }
  SECTION("too many GPUs") {
    facts = facts_of(PeerKernels::max_ranks + 1);
    why = "at most 8 GPUs";
  }
  CHECK_THAT(why_not_in_peer_memory(facts).value_or(""), ContainsSubstring(why));
  const auto ways = communication_routes(facts);
  CHECK(ways[ways.size() - 3].route == "refused");
  const CudaRoute& small = ways[ways.size() - 2];
  CHECK(small.route == facts.nccl);
  CHECK_THAT(small.why, ContainsSubstring(why));
}

TEST_CASE("If sums must not depend on the size, they need peer memory") {
  auto facts = facts_of(3);
  facts.reproducible = true;
  const auto floats = [&] {
    const auto ways = communication_routes(facts);
    const auto found = std::ranges::find(ways, "reductions of floating-point elements", &CudaRoute::what);
    REQUIRE(found != ways.end());
    return *found;
  };
  CHECK_THAT(floats().route, ContainsSubstring("at any size"));
  CHECK_THAT(floats().route, ContainsSubstring("groups"));
  facts.peer_memory = false;
  CHECK(floats().route == "refused");
  CHECK_THAT(floats().why, ContainsSubstring("collectives.peer_memory"));
  for (const CudaRoute& way : communication_routes(facts))  // no other row says that floats are reduced
    if (way.what.find("all_reduce") != std::string::npos)
      CHECK_THAT(way.what, ContainsSubstring("all_reduce of integers"));
}

TEST_CASE("Without NCCL collectives are refused, and it says why") {
  auto facts = facts_of(2);
  facts.nccl.clear();
  facts.why_no_nccl = "no such file";
  const auto ways = communication_routes(facts);
  REQUIRE(ways.size() == 2);
  CHECK(ways[1].route == "refused");
  CHECK(ways[1].why == "no such file");
}
