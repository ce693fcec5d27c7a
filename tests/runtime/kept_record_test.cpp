#include <coxswain/runtime/kept/kept_record.hpp>
#include <coxswain/runtime/kept/kept_state.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

using namespace cox;
using Kind = KeptMarkChange::Kind;

namespace {

bool apply(KeptRecord& record, Kind kind, std::uint64_t generation, std::uint64_t epoch = 0, bool two_copies = false) {
  return KeptMarkChange{.kind = kind, .generation = generation, .epoch = epoch, .two_copies = two_copies}.apply(record);
}

}  // namespace

TEST_CASE("The word of a mark holds its parts") {
  for (const KeptMark mark :
       {KeptMark{}, KeptMark{.generation = KeptMark::max_generation, .updating = true, .copy = 1, .epoch = 5},
        KeptMark{.generation = 3, .updating = false, .copy = 0, .epoch = KeptMark::max_epoch}})
    CHECK(KeptMark::from(mark.word()) == mark);
}

TEST_CASE("A record is whole between a commit and the next begin") {
  KeptRecord record;
  CHECK(apply(record, Kind::Adopt, 1));
  CHECK_FALSE(apply(record, Kind::Commit, 1));  // nothing was begun
  CHECK(apply(record, Kind::Begin, 1, 4));
  CHECK_FALSE(copy_of_epoch(record, 4, false));
  CHECK_FALSE(apply(record, Kind::Commit, 1, 5));  // of another update
  CHECK(apply(record, Kind::Commit, 1, 4));
  CHECK(copy_of_epoch(record, 4, false) == 0U);
  CHECK_FALSE(apply(record, Kind::Begin, 1, 4));  // not greater
  CHECK(apply(record, Kind::Begin, 1));           // one more
  CHECK(KeptMark::from(record.mark).epoch == 5);
  CHECK_FALSE(copy_of_epoch(record, 4, false));
  CHECK_FALSE(copy_of_epoch(record, 5, false));
}

TEST_CASE("A later process fences off updates of an earlier one") {
  KeptRecord record;
  apply(record, Kind::Adopt, 1);
  apply(record, Kind::Begin, 1, 1);
  apply(record, Kind::Commit, 1, 1);
  CHECK(apply(record, Kind::Adopt, 2));
  const KeptRecord adopted = record;
  CHECK_FALSE(apply(record, Kind::Begin, 1, 2));
  CHECK_FALSE(apply(record, Kind::Commit, 1));
  CHECK(record.mark == adopted.mark);
  CHECK(record.committed == adopted.committed);
  CHECK(apply(record, Kind::Begin, 2, 2));
}

TEST_CASE("With two copies the last commit stays whole during an update, and the one before it until then") {
  KeptRecord record;
  apply(record, Kind::Adopt, 1);
  for (std::uint64_t epoch = 1; epoch < 6; ++epoch) {
    CHECK(apply(record, Kind::Begin, 1, epoch, true));
    CHECK_FALSE(copy_of_epoch(record, epoch, true));
    if (epoch > 1) CHECK(copy_of_epoch(record, epoch - 1, true));
    if (epoch > 2) CHECK_FALSE(copy_of_epoch(record, epoch - 2, true));
    CHECK(apply(record, Kind::Commit, 1, epoch, true));
    CHECK(copy_of_epoch(record, epoch, true));
    if (epoch > 1) CHECK(copy_of_epoch(record, epoch, true) != copy_of_epoch(record, epoch - 1, true));
  }
}

namespace {

/// Two devices make some updates each; each step of each device is a write of a quarter of its memory or a change of
/// its record. With two copies a device begins an update after a collective of all that follows their last commits, or
/// only if all hold its last update, as begin_update checks. All states that any order of the steps can reach, each of
/// which a death of the process may leave.
struct World {
  struct Device {
    KeptRecord record;
    std::uint64_t contents[2][2] = {};  // two halves of each copy: the epoch that has written them
    unsigned at = 0;                    // steps done
  };
  Device devices[2];
};
constexpr unsigned steps_of_update = 4;  // begin, first half, second half, commit
constexpr unsigned updates = 4;
constexpr unsigned all_steps = updates * steps_of_update;

enum class Flaw { None, HostMarks, NoBarrier, NoBegin, NoFence };
/// What holds two updates with two copies apart.
enum class Between { Collective, Check };

// Whether the device may make its next step.
bool may_step(const World& world, unsigned device, bool two_copies, Flaw flaw, Between between = Between::Check) {
  const unsigned at = world.devices[device].at;
  if (at == all_steps) return false;
  if (!two_copies || flaw == Flaw::NoBarrier || at % steps_of_update != 0) return true;
  if (between == Between::Collective) return world.devices[1 - device].at >= at;
  const unsigned last = at / steps_of_update;
  return last == 0 || std::ranges::all_of(world.devices, [last](const World::Device& each) {
           return copy_of_epoch(each.record, last, true).has_value();
         });
}

// Returns whether the record allowed the step.
bool step(World& world, unsigned device, bool two_copies, Flaw flaw) {
  World::Device& it = world.devices[device];
  const std::uint64_t epoch = it.at / steps_of_update + 1;
  const KeptMark mark = KeptMark::from(it.record.mark);
  const unsigned written = two_copies ? mark.copy ^ 1U : 0U;
  switch (it.at++ % steps_of_update) {
    case 0:
      return (flaw == Flaw::NoBegin || apply(it.record, Kind::Begin, 1, epoch, two_copies)) &&
             (flaw != Flaw::HostMarks || apply(it.record, Kind::Commit, 1, epoch, two_copies));
    case 1: it.contents[flaw == Flaw::HostMarks && two_copies ? mark.copy : written][0] = epoch; return true;
    case 2: it.contents[flaw == Flaw::HostMarks && two_copies ? mark.copy : written][1] = epoch; return true;
    default:
      return (flaw != Flaw::NoBegin || apply(it.record, Kind::Begin, 1, epoch, two_copies)) &&
             (flaw == Flaw::HostMarks || apply(it.record, Kind::Commit, 1, epoch, two_copies));
  }
}

struct Found {
  std::size_t states = 0;
  std::size_t whole = 0;
  std::size_t wrong = 0;  // reported as whole, and not so
  std::size_t lost = 0;   // with two copies: torn after a first commit of all devices
};

void explore(const World& world, bool two_copies, Flaw flaw, std::set<std::pair<unsigned, unsigned>>& seen,
             Found& found) {
  if (!seen.emplace(world.devices[0].at, world.devices[1].at).second) return;
  ++found.states;
  const auto epoch = common_epoch({world.devices[0].record, world.devices[1].record}, two_copies);
  if (epoch) {
    ++found.whole;
    for (const World::Device& each : world.devices) {
      const unsigned copy = *copy_of_epoch(each.record, *epoch, two_copies);
      if (each.contents[copy][0] != *epoch || each.contents[copy][1] != *epoch) ++found.wrong;
    }
  } else if (two_copies && world.devices[0].at >= steps_of_update && world.devices[1].at >= steps_of_update) {
    ++found.lost;
  }
  for (unsigned device = 0; device < 2; ++device) {
    if (!may_step(world, device, two_copies, flaw)) continue;
    World next = world;
    REQUIRE(step(next, device, two_copies, flaw));
    explore(next, two_copies, flaw, seen, found);
  }
}

Found explored(bool two_copies, Flaw flaw) {
  World world;
  for (World::Device& each : world.devices) apply(each.record, Kind::Adopt, 1);
  std::set<std::pair<unsigned, unsigned>> seen;
  Found found;
  explore(world, two_copies, flaw, seen, found);
  return found;
}

/// The next process adopts the records of the devices, one after the other, while the devices go on with what the
/// process before has queued: a device ends at the first step that its record refuses.
struct Succession {
  World world;
  std::optional<KeptRecord> adopted[2];
  bool ended[2] = {false, false};

  [[nodiscard]] auto key() const {
    const auto of = [this](unsigned i) {
      return std::tuple(world.devices[i].at, ended[i], adopted[i].has_value(), adopted[i] ? adopted[i]->mark : 0,
                        adopted[i] ? adopted[i]->committed : std::array<std::uint64_t, 2>{});
    };
    return std::pair(of(0), of(1));
  }
};

void explore_succession(const Succession& at, bool two_copies, Flaw flaw,
                        std::set<decltype(std::declval<Succession>().key())>& seen, Found& found) {
  if (!seen.insert(at.key()).second) return;
  ++found.states;
  if (at.adopted[0] && at.adopted[1]) {
    if (const auto epoch = common_epoch({*at.adopted[0], *at.adopted[1]}, two_copies)) {
      ++found.whole;
      for (unsigned device = 0; device < 2; ++device) {
        const auto& contents =
            at.world.devices[device].contents[*copy_of_epoch(*at.adopted[device], *epoch, two_copies)];
        if (contents[0] != *epoch || contents[1] != *epoch) ++found.wrong;
      }
    }
  }
  for (unsigned device = 0; device < 2; ++device) {
    if (!at.adopted[device]) {
      Succession next = at;
      if (flaw != Flaw::NoFence) REQUIRE(apply(next.world.devices[device].record, Kind::Adopt, 2));
      next.adopted[device] = next.world.devices[device].record;
      explore_succession(next, two_copies, flaw, seen, found);
    }
    if (at.ended[device] || !may_step(at.world, device, two_copies, flaw)) continue;
    Succession next = at;
    next.ended[device] = !step(next.world, device, two_copies, flaw);
    explore_succession(next, two_copies, flaw, seen, found);
  }
}

Found explored_succession(bool two_copies, Flaw flaw) {
  Succession first;
  for (World::Device& each : first.world.devices) REQUIRE(apply(each.record, Kind::Adopt, 1));
  std::set<decltype(std::declval<Succession>().key())> seen;
  Found found;
  explore_succession(first, two_copies, flaw, seen, found);
  return found;
}

/// A world in which a device may refuse any commit, because memory is poisoned. The host has queued the next update
/// before it learns that, so with two copies that update writes the other copy, as after a commit; unless begin_update
/// checks. At any time the next process may adopt the records, one after the other, as in Succession.
struct Refusals {
  World world;
  unsigned believed[2] = {0, 0};  // the current copy, as the host counts
  std::optional<KeptRecord> adopted[2];
  bool ended[2] = {false, false};
  bool had_epoch = false;  // all devices have held one

  [[nodiscard]] auto key() const {
    const auto of = [this](unsigned i) {
      const World::Device& it = world.devices[i];
      return std::tuple(it.at, it.record.mark, it.record.committed, believed[i], it.contents[0][0], it.contents[0][1],
                        it.contents[1][0], it.contents[1][1], ended[i], adopted[i] ? adopted[i]->mark : 0,
                        adopted[i] ? adopted[i]->committed : std::array<std::uint64_t, 2>{});
    };
    return std::tuple(of(0), of(1), had_epoch);
  }
};

class RefusalExploration {
 public:
  RefusalExploration(bool two_copies, Between between) : two_copies_(two_copies), between_(between) {
    Refusals first;
    for (World::Device& each : first.world.devices) REQUIRE(apply(each.record, Kind::Adopt, 1));
    explore(first);
  }
  [[nodiscard]] const Found& found() const noexcept { return found_; }

 private:
  void explore(Refusals at) {
    if (at.adopted[0].has_value() == at.adopted[1].has_value()) check(at);
    if (!seen_.insert(at.key()).second) return;
    ++found_.states;
    for (unsigned device = 0; device < 2; ++device) {
      if (!at.adopted[device]) {
        Refusals next = at;
        REQUIRE(apply(next.world.devices[device].record, Kind::Adopt, 2));
        next.adopted[device] = next.world.devices[device].record;
        explore(next);
      }
      if (!at.ended[device] && may_step(at.world, device, two_copies_, Flaw::None, between_)) step(at, device);
    }
  }

  // What a process would find that opens the set now, or has adopted it.
  void check(Refusals& at) {
    const auto record = [&](unsigned i) { return at.adopted[i] ? *at.adopted[i] : at.world.devices[i].record; };
    const std::vector<std::uint64_t> epochs = common_epochs({record(0), record(1)}, two_copies_);
    for (const std::uint64_t epoch : epochs) {
      ++found_.whole;
      for (unsigned device = 0; device < 2; ++device) {
        const auto& contents = at.world.devices[device].contents[*copy_of_epoch(record(device), epoch, two_copies_)];
        if (contents[0] != epoch || contents[1] != epoch) ++found_.wrong;
      }
    }
    if (!epochs.empty()) at.had_epoch = true;
    if (at.had_epoch && epochs.empty()) ++found_.lost;
  }

  void step(Refusals at, unsigned device) {
    World::Device& it = at.world.devices[device];
    unsigned& believed = at.believed[device];
    const std::uint64_t epoch = it.at / steps_of_update + 1;
    const unsigned part = it.at++ % steps_of_update;
    const KeptMarkChange begin{
        .kind = Kind::Begin, .generation = 1, .epoch = epoch, .two_copies = two_copies_, .copy = believed};
    if (part == 0) {
      at.ended[device] = !begin.apply(it.record);
      REQUIRE(at.ended[device] == at.adopted[device].has_value());
    } else if (part < 3) {
      it.contents[two_copies_ ? believed ^ 1U : 0U][part - 1] = epoch;
    } else {
      if (two_copies_) believed ^= 1U;
      explore(at);  // refused
      at.ended[device] = !apply(it.record, Kind::Commit, 1, epoch, two_copies_);
    }
    explore(at);
  }

  const bool two_copies_;
  const Between between_;
  std::set<decltype(std::declval<Refusals>().key())> seen_;
  Found found_;
};

}  // namespace

TEST_CASE("Whichever commits are refused, and whatever is queued after them, nothing torn is reported as whole") {
  for (const bool two_copies : {false, true}) {
    const Found found = RefusalExploration(two_copies, Between::Collective).found();
    CAPTURE(two_copies, found.states);
    CHECK(found.states > 5000);
    CHECK(found.whole >= updates);
    CHECK(found.wrong == 0);
  }
}

TEST_CASE("With two copies, begin_update keeps the last update that all hold, whichever commits are refused") {
  const Found found = RefusalExploration(true, Between::Check).found();
  CAPTURE(found.states);
  CHECK(found.states > 500);
  CHECK(found.wrong == 0);
  CHECK(found.lost == 0);
  CHECK(RefusalExploration(true, Between::Collective).found().lost > 0);
}

TEST_CASE("Whatever the devices have done when the process ends, nothing torn is reported as whole") {
  const Found in_place = explored(false, Flaw::None);
  CHECK(in_place.states == (all_steps + 1) * (all_steps + 1));
  CHECK(in_place.whole == updates);  // both devices are between the same two updates
  CHECK(in_place.wrong == 0);
  const Found twice = explored(true, Flaw::None);
  CHECK(twice.states > 50);
  CHECK(twice.wrong == 0);
  CHECK(twice.lost == 0);
}

TEST_CASE("The exploration finds marks made ahead of the writes, a missing barrier and a missing begin") {
  CHECK(explored(false, Flaw::HostMarks).wrong > 0);
  CHECK(explored(true, Flaw::HostMarks).wrong > 0);
  CHECK(explored(true, Flaw::NoBarrier).lost > 0);
  CHECK(explored(false, Flaw::NoBegin).wrong > 0);
}

TEST_CASE("What a process has queued changes nothing that the next one has found whole, however late it runs") {
  for (const bool two_copies : {false, true}) {
    const Found found = explored_succession(two_copies, Flaw::None);
    CAPTURE(two_copies, found.states);
    CHECK(found.states > 400);
    CHECK(found.whole > 5);
    CHECK(found.wrong == 0);
    CHECK(explored_succession(two_copies, Flaw::NoFence).wrong > 0);
  }
}

TEST_CASE("The text of a state names its devices") {
  KeptState state;
  CHECK(state.to_string() == "empty");
  state.kind = KeptState::Kind::Whole;
  state.epoch = 12;
  CHECK(state.to_string() == "whole at epoch 12");
  state.kind = KeptState::Kind::Torn;
  state.devices = {{DeviceId{1, 0}, true, 13, 0, {}, {}, {}, false},
                   {DeviceId{1, 1}, false, 12, 12, {}, {}, {}, false}};
  state.devices[1].corrupt = {"a"};
  CHECK_THAT(state.to_string(),
             Catch::Matchers::EndsWith(" at epoch 12, corrupt: 'a' on " + DeviceId{1, 1}.to_string()));
  state.kind = KeptState::Kind::Corrupt;
  state.devices[0].corrupt = {"b"};
  CHECK(state.to_string() ==
        "corrupt at epoch 12: 'b' on " + DeviceId{1, 0}.to_string() + ", 'a' on " + DeviceId{1, 1}.to_string());
  state.kind = KeptState::Kind::Whole;
  state.devices[0].not_checked = {"c"};
  CHECK(state.to_string() == "whole at epoch 12, not checked");
  state.kind = KeptState::Kind::Torn;
  state.devices = {{DeviceId{1, 0}, true, 13, 0, {}, {}, {}, false},
                   {DeviceId{1, 1}, false, 12, 12, {}, {}, {}, false}};
  CHECK(state.to_string() ==
        "torn: " + DeviceId{1, 0}.to_string() + " in update 13, " + DeviceId{1, 1}.to_string() + " at epoch 12");
}
