#include <coxswain/tools/cox/stress/program.hpp>

#include <coxswain/tests/support/catch.hpp>

#include <array>
#include <cstddef>
#include <cstdint>

using namespace cox::stress;

namespace {

Options some_options(std::uint64_t seed) {
  Options options;
  options.devices = {{0, 0}, {0, 1}, {0, 2}};
  options.seed = seed;
  options.faults = {.throws = 0.1, .cancel = 0.1, .expire = 0.1};
  return options;
}

}  // namespace

TEST_CASE("Equal seeds give equal programs, whatever was asked for before") {
  const Options options = some_options(42);
  const Options same = some_options(42);
  const Program forwards(options, 3);
  const Program backwards(same, 3);
  std::array<Plan, 200> plans;
  for (std::size_t i = 0; i < plans.size(); ++i) plans[i] = forwards.at(i);
  for (std::size_t i = plans.size(); i-- > 0;) CHECK(backwards.at(i) == plans[i]);
}

TEST_CASE("Another seed or another client has another program") {
  const Options options = some_options(42);
  const Options other = some_options(43);
  std::size_t same_by_seed = 0;
  std::size_t same_by_client = 0;
  for (std::uint64_t i = 0; i < 100; ++i) {
    if (Program(options, 0).at(i) == Program(other, 0).at(i)) ++same_by_seed;
    if (Program(options, 0).at(i) == Program(options, 1).at(i)) ++same_by_client;
  }
  CHECK(same_by_seed == 0);
  CHECK(same_by_client == 0);
}

TEST_CASE("A program keeps to mix, payload, faults and devices") {
  Options options = some_options(7);
  options.mix = Mix::parse("--mix", "submit=3,read=1");
  options.payload = Payload::parse("--payload", "100:4KiB");
  const Program program(options, 0);
  constexpr std::uint64_t count = 20'000;
  std::uint64_t reads = 0;
  std::uint64_t throws = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    const Plan plan = program.at(i);
    REQUIRE((plan.operation == Operation::Submit || plan.operation == Operation::Read));
    REQUIRE((plan.operation == Operation::Submit || plan.fault == Fault::None));
    REQUIRE(plan.device < 3);
    REQUIRE(plan.bytes >= 100);
    REQUIRE(plan.bytes <= 4096);
    REQUIRE(plan.bytes % 4 == 0);
    reads += plan.operation == Operation::Read ? 1U : 0U;
    throws += plan.fault == Fault::Throw ? 1U : 0U;
  }
  CHECK(static_cast<double>(reads) == Approx(0.25 * count).epsilon(0.1));
  CHECK(static_cast<double>(throws) == Approx(0.75 * 0.1 * count).epsilon(0.1));
}
