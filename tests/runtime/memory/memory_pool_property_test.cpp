#include <coxswain/tests/runtime/memory/pool_model.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <rapidcheck.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

using namespace cox;
using namespace cox::test;

namespace {

/// One step of a program: what, and two numbers that say of which size, stream or allocation.
using Step = std::tuple<std::uint8_t, std::uint16_t, std::uint32_t>;

std::size_t size_of(std::uint16_t choice) {
  const std::size_t scale = std::size_t{1} << (choice % 18U);  // from one byte to a few granules
  return scale + choice % scale;
}

template <class Model>
std::string carry_out(Model& model, const Step& step, std::size_t memory) {
  const auto [kind, choice, other] = step;
  const StreamSlot stream{other % 4};
  switch (kind % 16) {
    case 0:
    case 1:
    case 2:
    case 3:
    case 4: return model.allocate(size_of(choice), stream);
    case 5: return model.allocate(size_of(choice), stream, Growth::Forbidden);
    case 6: return model.allocate(size_of(choice), no_stream);
    case 7:
    case 8:
    case 9:
    case 10: return model.live() == 0 ? "" : model.free(choice, {stream});
    case 11: return model.live() == 0 ? "" : model.free(choice, {});
    case 12: return model.live() == 0 ? "" : model.free(choice, {stream, StreamSlot{(other + 1) % 4}});
    case 13:
    case 14: model.progress(stream); return {};
    default:
      if (choice % 8 == 0) return model.cleanup();
      return choice % 8 == 1 ? model.set_capacity(memory - (other % 4) * (memory / 4)) : std::string();
  }
}

/// Of the numbers' whole range, whatever the size of the program.
rc::Gen<Step> arbitrary_step() { return rc::gen::resize(rc::kNominalSize, rc::gen::arbitrary<Step>()); }

/// How many steps have been taken in all.
std::size_t steps_taken = 0;

/// How often memory got other addresses while it was in use.
std::size_t moved = 0;

template <class Storage>
void obeys(std::size_t memory) {
  const bool held = rc::check([memory] {
    const auto steps = *rc::gen::resize(3000, rc::gen::container<std::vector<Step>>(arbitrary_step()));
    Storage storage(memory);
    {
      PoolModel<Storage> model(storage, {.alignment = 512, .capacity = memory, .address_space = 64 * memory});
      for (const Step& step : steps) {
        const std::string broken = carry_out(model, step, memory);
        if (!broken.empty()) RC_FAIL(broken);
      }
      RC_ASSERT(model.pool().consistent());
      steps_taken += steps.size();
      if constexpr (AliasingStorage<Storage>) moved += storage.aliased;
    }
    RC_ASSERT(storage.mapped == 0U);
  });
  REQUIRE(held);
}

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr std::size_t enough_steps = 100'000;
#else
constexpr std::size_t enough_steps = 1'000'000;
#endif

}  // namespace

TEST_CASE("L11 L7: a million random steps on mapped memory keep every law", "[memory]") {
  steps_taken = 0;
  moved = 0;
  while (steps_taken < enough_steps / 2) obeys<PaperMapping>(4U << 20U);
  while (steps_taken < enough_steps) obeys<PaperMapping>(256U << 10U);  // short of memory
  CHECK(moved > enough_steps / 1'000);
}

TEST_CASE("L11 L7: random steps on regions keep every law", "[memory]") {
  steps_taken = 0;
  while (steps_taken < enough_steps / 5) obeys<PaperRegions>(256U << 20U);
}
