#include <coxswain/runtime/kept/kept_agreement.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

using cox::KeptAgreement;
using cox::KeptMark;
using cox::KeptMarkChange;
using cox::KeptOffer;
using cox::KeptRecord;
using cox::KeptState;

namespace {

KeptAgreement agreement_of(const std::vector<KeptOffer>& offers) { return KeptAgreement::from(offers); }

KeptOffer holds(std::uint64_t newest, std::uint64_t older, std::uint64_t last_epoch) {
  return {.epochs = {newest, older}, .last_epoch = last_epoch};
}

// What a process offers that has these devices.
KeptOffer offer_of(const std::vector<KeptRecord>& records, bool two_copies) {
  KeptState state;
  state.epochs = cox::common_epochs(records, two_copies);
  return KeptOffer::from(state);
}

KeptRecord random_record(std::mt19937& random) {
  const auto below = [&](unsigned count) { return std::uint64_t{random() % count}; };
  KeptRecord record;
  record.committed = {below(4), below(4)};
  record.mark =
      KeptMark{.generation = 1, .updating = below(3) == 0, .copy = static_cast<unsigned>(below(2)), .epoch = 3}.word();
  return record;
}

}  // namespace

TEST_CASE("Processes agree on the newest epoch that all of them hold") {
  CHECK(agreement_of({holds(5, 4, 5), holds(5, 4, 5)}).epoch == 5);
  CHECK(agreement_of({holds(5, 4, 5), holds(4, 0, 5), holds(5, 4, 5)}).epoch == 4);
  CHECK(agreement_of({holds(5, 0, 5), holds(4, 0, 4)}).epoch == 0);
  CHECK(agreement_of({holds(5, 4, 5), holds(0, 0, 5)}).epoch == 0);
  CHECK(agreement_of({holds(0, 0, 0), holds(0, 0, 0)}).epoch == 0);
  CHECK(agreement_of({holds(7, 6, 8)}).epoch == 7);
}

TEST_CASE("The next update follows all that any process has begun, and one suspect process is enough") {
  KeptOffer late = holds(4, 0, 6);
  late.suspect = 1;
  late.runs_without_commit = 3;
  const KeptAgreement agreement = agreement_of({holds(5, 4, 5), late});
  CHECK(agreement.last_epoch == 6);
  CHECK(agreement.suspect);
  CHECK(agreement.runs_without_commit == 3);
  CHECK_FALSE(agreement_of({holds(5, 4, 5), holds(5, 4, 5)}).suspect);
}

TEST_CASE("An offer has what the state says") {
  KeptState state;
  state.epochs = {9, 8};
  state.last_epoch = 10;
  state.suspect = true;
  state.runs_without_commit = 2;
  const KeptOffer offer = KeptOffer::from(state);
  CHECK(offer.epochs == std::array<std::uint64_t, 2>{9, 8});
  CHECK(offer.last_epoch == 10);
  CHECK(offer.suspect == 1);
  CHECK(offer.runs_without_commit == 2);
}

TEST_CASE("However the devices belong to processes, these agree on what one process with all of them finds") {
  std::mt19937 random(7);
  std::size_t found = 0;
  for (int round = 0; round < 20'000; ++round) {
    const bool two_copies = random() % 2 == 0;
    std::vector<KeptRecord> all;
    std::vector<std::vector<KeptRecord>> processes(1 + random() % 3);
    for (auto& process : processes)
      for (unsigned devices = 1 + random() % 2; devices > 0; --devices) {
        all.push_back(random_record(random));
        process.push_back(all.back());
      }
    std::vector<KeptOffer> offers;
    for (const auto& process : processes) offers.push_back(offer_of(process, two_copies));
    const std::optional<std::uint64_t> expected = cox::common_epoch(all, two_copies);
    REQUIRE(agreement_of(offers).epoch == expected.value_or(0));
    if (expected) ++found;
  }
  CHECK(found > 1000);
}

namespace {

enum class RunFlaw { None, OwnEpoch, OwnNumbers };

/// A process with one device, from run to run.
struct Member {
  KeptRecord record;
  std::array<std::array<std::uint64_t, 2>, 2>
      contents{};                 // halves of each copy: the run and epoch that have written them
  unsigned copy = 0;              // the current one
  std::uint64_t first_epoch = 0;  // of the updates of this run
  unsigned at = 0;                // steps done in this run
};
constexpr unsigned member_steps = 4;  // begin, first half, second half, commit

struct WorldRuns {
  std::size_t continued = 0;  // runs that have begun with the contents of one before
  std::size_t went_back = 0;  // of these, with a process that had committed more
  std::size_t wrong = 0;      // the processes have begun with other contents than each other, or with torn ones
  std::size_t lost = 0;       // two copies, and no common epoch although there was one before
  bool has_been_whole = false;
};

void begin_run(std::array<Member, 2>& members, std::uint64_t run, bool two_copies, RunFlaw flaw, WorldRuns& runs) {
  std::vector<KeptOffer> offers;
  for (Member& member : members) {
    REQUIRE(KeptMarkChange{.kind = KeptMarkChange::Kind::Adopt, .generation = run}.apply(member.record));
    offers.push_back(offer_of({member.record}, two_copies));
    offers.back().last_epoch = KeptMark::from(member.record.mark).epoch;
  }
  const KeptAgreement agreement = KeptAgreement::from(offers);
  bool same = true;
  for (std::size_t i = 0; i < members.size(); ++i) {
    Member& member = members[i];
    const KeptMark mark = KeptMark::from(member.record.mark);
    const std::uint64_t epoch = flaw == RunFlaw::OwnEpoch ? offers[i].epochs[0] : agreement.epoch;
    member.copy = cox::copy_of_epoch(member.record, epoch, two_copies).value_or(mark.copy);
    member.first_epoch = (flaw == RunFlaw::OwnNumbers ? mark.epoch : agreement.last_epoch) + 1;
    member.at = 0;
    const auto& contents = member.contents[member.copy];
    same = same && contents[0] == contents[1] && contents == members[0].contents[members[0].copy];
  }
  if (agreement.epoch == 0) {
    if (two_copies && runs.has_been_whole) ++runs.lost;
    return;
  }
  runs.has_been_whole = true;
  ++runs.continued;
  if (offers[0].epochs[0] != agreement.epoch || offers[1].epochs[0] != agreement.epoch) ++runs.went_back;
  if (!same) ++runs.wrong;
}

void make_step(Member& member, std::uint64_t run, bool two_copies) {
  const std::uint64_t epoch = member.first_epoch + member.at / member_steps;
  const unsigned written = two_copies ? member.copy ^ 1U : 0U;
  KeptMarkChange change{
      .kind = KeptMarkChange::Kind::Begin, .generation = run, .epoch = epoch, .two_copies = two_copies};
  switch (member.at++ % member_steps) {
    case 0:
      change.copy = member.copy;
      REQUIRE(change.apply(member.record));
      break;
    case 1: member.contents[written][0] = run << 32U | epoch; break;
    case 2: member.contents[written][1] = run << 32U | epoch; break;
    default:
      change.kind = KeptMarkChange::Kind::Commit;
      REQUIRE(change.apply(member.record));
      member.copy = written;
  }
}

/// Runs of a world, each of which ends after a random number of steps: none of its processes makes another one. No
/// process begins an update before the other one has committed the last one.
WorldRuns random_runs(bool two_copies, RunFlaw flaw, unsigned seed) {
  std::mt19937 random(seed);
  std::array<Member, 2> members;
  WorldRuns runs;
  for (std::uint64_t run = 1; run <= 20; ++run) {
    begin_run(members, run, two_copies, flaw, runs);
    for (auto steps = random() % 30; steps > 0; --steps) {
      const std::size_t i = random() % 2;
      const unsigned at = members[i].at;
      if (at % member_steps == 0 && members[1 - i].at < at) continue;  // waits
      make_step(members[i], run, two_copies);
    }
  }
  return runs;
}

WorldRuns sum_of_runs(bool two_copies, RunFlaw flaw) {
  WorldRuns sum;
  for (unsigned seed = 0; seed < 500; ++seed) {
    const WorldRuns runs = random_runs(two_copies, flaw, seed);
    sum.continued += runs.continued;
    sum.went_back += runs.went_back;
    sum.wrong += runs.wrong;
    sum.lost += runs.lost;
  }
  return sum;
}

}  // namespace

TEST_CASE("Whenever the runs of a world end, its processes continue with the same contents") {
  const WorldRuns in_place = sum_of_runs(false, RunFlaw::None);
  CHECK(in_place.continued > 500);
  CHECK(in_place.wrong == 0);
  const WorldRuns twice = sum_of_runs(true, RunFlaw::None);
  CHECK(twice.continued > 5000);
  CHECK(twice.went_back > 1000);
  CHECK(twice.wrong == 0);
  CHECK(twice.lost == 0);
}

TEST_CASE("The random runs find processes that continue at their own epoch, or count epochs by themselves") {
  CHECK(sum_of_runs(true, RunFlaw::OwnEpoch).wrong > 0);
  const WorldRuns own_numbers = sum_of_runs(true, RunFlaw::OwnNumbers);
  CHECK(own_numbers.wrong + own_numbers.lost > 0);
}
