#include <coxswain/tests/collectives/world/world_model.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

using namespace cox;
using namespace cox::test;

namespace {

using StepKind = ModelStep::Kind;
using Program = std::vector<ModelStep>;

constexpr std::uint8_t a = 0;
constexpr std::uint8_t b = 1;
constexpr std::uint8_t c = 2;

/// Asks one operation after the other: "abab".
Program asks(const std::string& sequences) {
  Program program;
  for (const char sequence : sequences) program.push_back({.sequence = static_cast<std::uint8_t>(sequence - 'a')});
  return program;
}

/// Groups A of all three processes and B of the last two, which submit two operations of each in orders of their own.
ModelWorld three_orders() {
  return {.groups = {group({0, 1, 2}), group({1, 2})},
          .sequences = {{.group = 0, .operations = 1}, {.group = 1, .operations = 1}},
          .programs = {asks("aa"), asks("abab"), asks("bbaa")}};
}

/// Every process waits for what it has submitted before, in another sequence.
ModelWorld waits() {
  ModelWorld world = three_orders();
  world.programs[1] = {{a}, {.sequence = b, .awaited = {{a, 1}}}, {.sequence = a, .awaited = {{b, 1}}}, {b}};
  world.programs[2] = {{a}, {.sequence = b, .awaited = {{a, 1}}}, {b}, {a}};
  return world;
}

/// Groups of two processes each, in a ring: whichever ask arrives last closes the cycle.
ModelWorld ring() {
  return {.groups = {group({0, 1}), group({1, 2}), group({0, 2})},
          .sequences = {{.group = 0, .operations = 1}, {.group = 1, .operations = 1}, {.group = 2, .operations = 1}},
          .programs = {{{a}, {.sequence = c, .awaited = {{a, 1}}}, {a}},
                       {{b}, {.sequence = a, .awaited = {{b, 1}}}, {a}},
                       {{c}, {.sequence = b, .awaited = {{c, 1}}}}}};
}

/// Refusals, different requests, and operations after them.
ModelWorld refusals() {
  ModelWorld world = three_orders();
  world.programs[0] = {{.sequence = a, .request = 1}, {a}, {a}};
  world.programs[1] = {{b}, {.sequence = b, .awaited = {{b, 1}}}, {.sequence = a, .awaited = {{b, 1}}}, {a}, {a}};
  world.programs[2] = {{a},
                       {.sequence = b, .kind = StepKind::Refuse},
                       {b},
                       {.sequence = a, .kind = StepKind::Refuse},
                       {.sequence = a, .awaited = {{a, 2}, {b, 2}}}};
  return world;
}

/// Breaks from a later operation on, and of an instance that also has transfers.
ModelWorld breaks() {
  ModelWorld world{.groups = {group({0, 1, 2}), group({1, 2})},
                   .sequences = {{.group = 0, .operations = 1},
                                 {.group = 1, .operations = 1},
                                 {.group = 0, .direction = {0, 1}, .operations = 1}},
                   .programs = {asks("aca"), {}, {}}};
  world.programs[1] = {{a}, {.sequence = a, .kind = StepKind::Break, .from = 2}, {b}, {c}, {a}};
  world.programs[2] = {{a}, {a}, {.sequence = b, .awaited = {{a, 2}}}};
  return world;
}

/// One operation of each group, for explorations in which more happens.
ModelWorld one_each() {
  ModelWorld world = three_orders();
  world.programs = {asks("a"), asks("ab"), {{b}, {.sequence = a, .awaited = {{b, 1}}}}};
  return world;
}

/// Process 2 never submits what the others wait for; process 0 waits for it by way of another group.
ModelWorld missing() {
  return {.groups = {group({0, 1}), group({1, 2})},
          .sequences = {{.group = 0, .operations = 0}, {.group = 1, .operations = 0}},
          .programs = {asks("aa"), {{b}, {.sequence = a, .awaited = {{b, 1}}}, {a}}, {}}};
}

ModelWorld stepwise(ModelWorld world) {
  world.stepwise = true;
  return world;
}
ModelWorld with_crash(ModelWorld world, std::uint8_t of = 0xff) {
  world.crashes = 1;
  world.may_crash = of;
  return world;
}
ModelWorld with_successor(ModelWorld world, std::uint8_t of = 0xff) {
  world = with_crash(std::move(world), of);
  world.restarts = true;
  return world;
}
ModelWorld with_completion(ModelWorld world, std::size_t max_ahead) {
  world.completes = true;
  world.max_ahead = max_ahead;
  return world;
}
ModelWorld with_time(ModelWorld world, std::uint8_t answers) {
  world.timeouts = 1;
  world.answers = answers;
  return world;
}
/// A process that takes part in nothing.
ModelWorld with_idle_process(ModelWorld world) {
  ++world.processes;
  world.programs.emplace_back();
  return world;
}
ModelWorld hasty(ModelWorld world) {
  world.hasty = true;
  world.max_epoch = 3;
  return world;
}

struct NamedWorld {
  const char* name;
  ModelWorld world;
};

// With sanitizers each state takes ten times as long.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::size_t most_transitions = 100'000;
#else
constexpr std::size_t most_transitions = 1'000'000'000;
#endif

/// Explores each of these worlds. Prints the number of states if COX_EXPLORATION is "print".
void check(const std::vector<NamedWorld>& worlds) {
  for (const NamedWorld& each : worlds) {
    const Explored found = explore(each.world, Flaw::None, most_transitions);
    const std::string figures = std::string(each.name) + ": " + std::to_string(found.states) + " states, " +
                                std::to_string(found.transitions) + " transitions, " + std::to_string(found.quiet) +
                                " quiet states";
    if (const char* const wish = std::getenv("COX_EXPLORATION"); wish != nullptr && wish == std::string("print"))
      std::puts(figures.c_str());
    INFO(figures);
    CHECK(found.violation == "");
    CHECK(found.states > 50);
    CHECK(found.quiet > 0);
  }
}

}  // namespace

TEST_CASE("Whatever the order of steps and messages, no process waits forever", "[exploration]") {
  check({{"orders", stepwise(three_orders())},
         {"waits", stepwise(waits())},
         {"ring", stepwise(ring())},
         {"ring, idle process", stepwise(with_idle_process(ring()))},
         {"refusals", stepwise(refusals())},
         {"breaks", breaks()}});
}

TEST_CASE("Whenever a process crashes, the others know all instances that it breaks", "[exploration]") {
  check({{"orders, crash", with_crash(three_orders())},
         {"waits, crash", with_crash(waits())},
         {"ring, crash", with_crash(ring())},
         {"ring, crash, stepwise", stepwise(with_crash(ring()))},
         {"refusals, crash", with_crash(refusals())},
         {"breaks, crash", with_crash(breaks())},
         {"one each, crash, stepwise", stepwise(with_crash(one_each()))},
         {"one each, crash, hasty", hasty(with_crash(one_each()))},
         {"one each, crash of an idle process", with_crash(with_idle_process(one_each()), 8)}});
}

TEST_CASE("A successor and the survivors agree on epochs", "[exploration]") {
  check({{"one each, successor of 0", with_successor(one_each(), 1)},
         {"one each, successor of 1", with_successor(one_each(), 2)},
         {"one each, successor of 2", with_successor(one_each(), 4)}});
}

TEST_CASE("No process is more than max_ahead operations behind, and none waits for it forever", "[exploration]") {
  check({{"orders, 1 ahead", with_completion(three_orders(), 1)},
         {"waits, 1 ahead", with_completion(waits(), 1)},
         {"refusals, 1 ahead", with_completion(refusals(), 1)},
         {"waits, 1 ahead, stepwise", stepwise(with_completion(waits(), 1))}});
}

TEST_CASE("An operation with a missing process ends at its deadline, whenever time passes", "[exploration]") {
  check({{"missing, no answers", with_time(missing(), 0)},
         {"missing, answers", with_time(missing(), 0xff)},
         {"missing, answers, crash", with_crash(with_time(missing(), 0xff))},
         {"orders, time", with_time(three_orders(), 0xff)},
         {"waits, time", with_time(waits(), 2)}});
}

// Takes minutes: test_world "[.long]".
TEST_CASE("The same with more steps", "[exploration][.long]") {
  check({{"orders, crash, stepwise", stepwise(with_crash(three_orders()))},
         {"waits, crash, stepwise", stepwise(with_crash(waits()))},
         {"refusals, crash, stepwise", stepwise(with_crash(refusals()))},
         {"one each, successor of any, stepwise", stepwise(with_successor(one_each()))},
         {"orders, successor of 1", with_successor(three_orders(), 2)},
         {"ring, successor of 1", with_successor(ring(), 2)},
         {"one each, successor of 1, hasty", hasty(with_successor(one_each(), 2))},
         {"waits, time, stepwise", stepwise(with_time(waits(), 0xff))},
         {"breaks, stepwise", stepwise(breaks())}});
}

TEST_CASE("The exploration finds each planted fault", "[exploration]") {
  struct Planted {
    Flaw flaw;
    ModelWorld world;
    const char* violation;
  };
  const std::vector<Planted> planted{
      {Flaw::ReleaseEarly, stepwise(three_orders()), "launched that not all processes have asked"},
      {Flaw::SwapTurns, one_each(), "turns are not in order"},
      {Flaw::IgnoreAwaited, waits(), "launched before one that it awaits"},
      {Flaw::MissMismatch, refusals(), "different requests is launched"},
      {Flaw::IgnoreAhead, with_completion(three_orders(), 1), "too far behind"},
      {Flaw::LoseRelease, three_orders(), "no process is missing"},
      {Flaw::LoseRefusal, stepwise(refusals()), "launched before an earlier one"},
      {Flaw::ForgetRefusals, refusals(), "launched before an earlier one"},
      {Flaw::BreakReleased, with_crash(three_orders()), "broken that was launched"},
      {Flaw::BreakUntold, stepwise(with_crash(one_each())), "no process is missing"},
      {Flaw::BreakOnlyOnCrash, breaks(), "launched before one that it awaits"},
      {Flaw::CrashUntold, with_crash(three_orders()), "no process is missing"},
      {Flaw::SuccessorUntold, with_successor(one_each(), 2), "no process is missing"},
      {Flaw::EpochKept, with_successor(one_each(), 4), "twice"},
      {Flaw::HastyBreak, breaks(), "launched that was broken"},
      {Flaw::SkipRefused, stepwise(refusals()), "a fault"},
      {Flaw::NoProgress, with_completion(three_orders(), 1), "no process is missing"},
      {Flaw::NoDeadline, missing(), "after its deadline"},
  };
  for (const Planted& each : planted) {
    INFO("flaw " << static_cast<int>(each.flaw));
    CHECK_THAT(explore(each.world, each.flaw).violation, Catch::Matchers::ContainsSubstring(each.violation));
  }
}
