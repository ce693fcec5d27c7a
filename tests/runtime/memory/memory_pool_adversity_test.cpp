// A pool of eight streams under everything that may happen to it at once: work that falls behind, storage that refuses,
// allocations that may not grow it, capacities that change. After any of it, all memory can be had again.

#include <coxswain/tests/runtime/memory/pool_model.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <rapidcheck.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

using namespace cox;
using namespace cox::test;

namespace {

/// What happens, and three numbers that say to which stream, allocation or size.
using Event = std::tuple<std::uint8_t, std::uint8_t, std::uint16_t, std::uint16_t>;

template <class Storage>
class Adversity {
 public:
  explicit Adversity(std::size_t memory)
      : memory_(memory),
        storage_(memory),
        model_(storage_, {.alignment = 256, .capacity = memory, .address_space = 64 * memory, .slack = 0}) {}

  std::string happens(const Event& event) {
    const auto [kind, slot, size, other] = event;
    const StreamSlot stream{slot % 8U};
    if (kind < 80) return model_.allocate(bytes(size), stream);
    if (kind < 90) return model_.allocate(bytes(size), no_stream);
    if (kind < 110) return model_.allocate(bytes(size), stream, Growth::Forbidden);
    if (kind < 200) return free(kind, slot, size);
    if (kind < 230) return progress(stream, other);
    if (kind < 240) return refuse(other);
    if (kind < 246) return model_.set_capacity(other % 2 == 0 ? memory_ : memory_ / 64 * (other % 64));
    if (kind < 250) return model_.cleanup();
    return model_.check_all();
  }

  std::string ends(StreamSlot stream) {
    refuse(0);
    std::string broken = model_.set_capacity(memory_);
    if (broken.empty()) broken = model_.check_all();
    if (broken.empty()) broken = model_.finish_work(stream);
    return broken.empty() ? model_.give_everything_back() : broken;
  }

  [[nodiscard]] const Storage& storage() const noexcept { return storage_; }

 private:
  /// From one byte to half of the memory, small ones more often.
  [[nodiscard]] std::size_t bytes(std::uint16_t choice) const {
    const std::size_t scale = memory_ >> (1 + choice % 13U);
    return 1 + scale * (choice / 13U) / 5042U;
  }

  std::string free(std::uint8_t kind, std::uint8_t slot, std::uint16_t which) {
    if (model_.live() == 0) return {};
    const StreamSlot stream{slot % 8U};
    const StreamSlot next{(slot + 1U) % 8U};
    const StreamSlot last{(slot + 3U) % 8U};
    if (kind < 175) return model_.free(which, {stream});
    if (kind < 185) return model_.free(which, {});
    if (kind < 195) return model_.free(which, {stream, next});
    return model_.free(which, {stream, next, last});
  }

  std::string progress(StreamSlot stream, std::uint16_t percent) {
    model_.progress(stream, percent % 101U);
    return model_.check();
  }

  std::string refuse(std::uint16_t what) {
    storage_.refuse = what % 4 == 1;
    if constexpr (AliasingStorage<Storage>) storage_.refuse_alias = what % 4 >= 2;
    return {};
  }

  std::size_t memory_;
  Storage storage_;
  PoolModel<Storage> model_;
};

/// Of the numbers' whole range, whatever the size of the program.
rc::Gen<Event> arbitrary_event() { return rc::gen::resize(rc::kNominalSize, rc::gen::arbitrary<Event>()); }

struct Taken {
  std::size_t steps = 0;
  std::size_t moved = 0;
};

template <class Storage>
Taken survives(std::size_t memory, std::size_t steps) {
  Taken taken;
  while (taken.steps < steps) {
    REQUIRE(rc::check([&] {
      const auto events = *rc::gen::resize(2000, rc::gen::container<std::vector<Event>>(arbitrary_event()));
      Adversity<Storage> adversity(memory);
      for (const Event& event : events) {
        const std::string broken = adversity.happens(event);
        if (!broken.empty()) RC_FAIL(broken);
      }
      const std::string broken = adversity.ends(StreamSlot{static_cast<std::uint32_t>(events.size() % 8)});
      if (!broken.empty()) RC_FAIL(broken);
      taken.steps += events.size();
      if constexpr (AliasingStorage<Storage>) taken.moved += adversity.storage().aliased;
    }));
  }
  return taken;
}

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr std::size_t enough = 100'000;
#else
constexpr std::size_t enough = 1'000'000;
#endif

}  // namespace

TEST_CASE("L7 L11 L13: half a million adverse steps on memory that can be moved", "[memory]") {
  CHECK(survives<PaperMapping>(1U << 20U, enough / 4).moved > enough / 1000);
  CHECK(survives<PaperMapping>(64U << 10U, enough / 4).moved > enough / 100'000);  // of 16 granules
}

TEST_CASE("L7 L11 L13: adverse steps on memory with one address at a time", "[memory]") {
  survives<PaperMappingWithoutAliases>(1U << 20U, enough / 4);
}

TEST_CASE("L7 L11 L13: adverse steps on regions", "[memory]") { survives<PaperRegions>(256U << 20U, enough / 4); }
