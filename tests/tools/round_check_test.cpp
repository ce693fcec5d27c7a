#include <coxswain/tools/cox/stress/round_check.hpp>

#include <coxswain/runtime/bytes/bytes.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>
#include <coxswain/runtime/error/io_error.hpp>
#include <coxswain/runtime/error/launch_error.hpp>
#include <coxswain/runtime/error/server_error.hpp>
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tools/cox/stress/round_values.hpp>

#include <exception>
#include <memory>
#include <source_location>
#include <stdexcept>
#include <string>
#include <vector>

using namespace cox::stress;
using Kind = cox::CollectiveError::Kind;

namespace {

Options two_devices() {
  Options options;
  options.devices = {{0, 0}, {0, 1}};
  options.clients = 1;
  return options;
}

std::exception_ptr error(Kind kind, const std::string& text) {
  return std::make_exception_ptr(cox::CollectiveError(kind, text));
}

struct CheckBench {
  Options options = two_devices();
  Truth truth{options.devices, 1};
  RoundBook book{options, 1U << 20U};
  Random random{1};
  std::shared_ptr<Round> round = std::make_shared<Round>(2);

  explicit CheckBench(Fault fault = Fault::None) {
    round->line = &book.pick_line(Operation::AllReduce, random);
    round->parts.push_back({.count = 100, .seed = 7});
    round->fault = fault;
    round->faulty_rank = 1;
    for (RoundRank& rank : round->ranks) {
      rank.called = true;
      rank.results.emplace_back(cox::CopyDescriptor{});
    }
  }
  [[nodiscard]] std::vector<RankOutcome> right() const {
    std::vector<RankOutcome> outcomes(2);
    for (RankOutcome& outcome : outcomes)
      outcome.values.push_back(cox::Bytes::copy_of(RoundValues(round->parts.front(), 2).result_of(0)));
    return outcomes;
  }
  [[nodiscard]] static std::vector<RankOutcome> both(const std::exception_ptr& failure) {
    std::vector<RankOutcome> outcomes(2);
    for (RankOutcome& outcome : outcomes) outcome.error = failure;
    return outcomes;
  }
  std::uint64_t check(const std::vector<RankOutcome>& outcomes) { return check_round(truth, book, *round, outcomes); }
  [[nodiscard]] std::vector<Violation> found() { return truth.violations().all(); }
};

}  // namespace

TEST_CASE("The right values on every rank are right") {
  CheckBench bench;
  CHECK(bench.check(bench.right()) == 0);
  CHECK(bench.found().empty());
}

TEST_CASE("One wrong byte on one rank is found, with its device") {
  CheckBench bench;
  auto outcomes = bench.right();
  outcomes[1].values.front().data()[10] ^= std::byte{1};
  bench.check(outcomes);
  REQUIRE(bench.found().size() == 1);
  CHECK(bench.found().front().law == Law::Data);
  CHECK(bench.found().front().device == cox::DeviceId{0, 1});
  CHECK(bench.found().front().got == "element 2 of 100 differs");
}

TEST_CASE("An error that no fault explains is found") {
  for (const Kind kind : {Kind::Timeout, Kind::Mismatch, Kind::RankFailed, Kind::WouldDeadlock, Kind::Aborted}) {
    CheckBench bench;
    CHECK(bench.check(CheckBench::both(error(kind, "host:1 is missing"))) == 0);
    CHECK(bench.found().size() == 2);
  }
}

TEST_CASE("Where a rank is missing every other one must be told, and which") {
  const std::string names = "host:1 is missing";
  {
    CheckBench bench(Fault::Missing);
    CHECK(bench.check(CheckBench::both(error(Kind::Timeout, names))) == 2);
    CHECK(bench.found().empty());
    CHECK(bench.round->timed_out);
  }
  CheckBench other_device(Fault::Missing);
  other_device.check(CheckBench::both(error(Kind::Timeout, "host:0 is missing")));
  CHECK(other_device.found().size() == 2);
  CheckBench other_kind(Fault::Missing);
  other_kind.check(CheckBench::both(error(Kind::Aborted, names)));
  CHECK(other_kind.found().size() == 2);
  CheckBench no_error(Fault::Missing);
  no_error.check(no_error.right());
  CHECK(no_error.found().size() == 2);
}

TEST_CASE("A mismatch must name the device that differs and another") {
  const std::string a = "host:0";
  const std::string b = "host:1";
  CheckBench named(Fault::Mismatch);
  CHECK(named.check(CheckBench::both(error(Kind::Mismatch, a + " and " + b + " submitted different operations"))) == 2);
  CHECK(named.found().empty());
  CheckBench unnamed(Fault::Mismatch);
  unnamed.check(CheckBench::both(error(Kind::Mismatch, "communicator 1 {" + a + ", " + b + "}: they differ")));
  CHECK(unnamed.found().size() == 2);
}

TEST_CASE("A shutdown explains typed errors of what it hit, not wrong values, and no other errors") {
  CheckBench typed;
  typed.round->shaken = true;
  CHECK(typed.check(CheckBench::both(error(Kind::Aborted, "communicator refused: host:1 was shut down"))) == 2);
  CHECK(typed.found().empty());
  for (const auto& untold : {error(Kind::Aborted, "host:7 was shut down"), error(Kind::Timeout, "host:1 was shut down"),
                             error(Kind::RankFailed, "host:1 was shut down")}) {
    CheckBench bench;
    bench.round->shaken = true;
    bench.check(CheckBench::both(untold));
    CHECK(bench.found().size() == 2);
  }
  CheckBench wrong;
  wrong.round->shaken = true;
  auto outcomes = wrong.right();
  outcomes[0].values.front().data()[0] ^= std::byte{1};
  wrong.check(outcomes);
  CHECK(wrong.found().size() == 1);
  CheckBench other;
  other.round->shaken = true;
  other.check(CheckBench::both(std::make_exception_ptr(std::runtime_error("other"))));
  CHECK(other.found().size() == 2);
}

TEST_CASE("L16 an abort explains errors that name its cause, on open rounds of its communicator alone") {
  const std::string cause = "client 3 gave up in its operation 9";
  const auto aborted = [&](const std::string& text) {
    return CheckBench::both(error(Kind::Aborted, "aborted: " + text));
  };
  SECTION("the cause") {
    CheckBench bench;
    bench.round->abort_cause = &cause;
    CHECK(bench.check(aborted(cause)) == 2);
    CHECK(bench.found().empty());
  }
  SECTION("another cause") {
    CheckBench bench;
    bench.round->abort_cause = &cause;
    CHECK(bench.check(aborted("client 4 gave up in its operation 1")) == 0);
    REQUIRE(bench.found().size() == 2);
    CHECK(bench.found().front().expected ==
          "all_reduce succeeds, or ends in CollectiveError with the cause: client 3 gave up in its operation 9");
  }
  SECTION("a timeout instead") {
    CheckBench bench;
    bench.round->abort_cause = &cause;
    CHECK(bench.check(CheckBench::both(error(Kind::Timeout, cause))) == 0);
    CHECK(bench.found().size() == 2);
  }
  SECTION("another communicator") {
    CheckBench bench;
    CHECK(bench.check(aborted(cause)) == 0);
    CHECK(bench.found().size() == 2);
  }
}

TEST_CASE("L14 what another stream makes of a result is its value, or fails with what the round failed with") {
  const auto poisoned = [](const std::exception_ptr& cause) {
    const auto here = std::source_location::current();
    const auto memory = std::make_exception_ptr(cox::IoError(cox::IoError::Kind::Poisoned, "poisoned", here, cause));
    const auto launch = std::make_exception_ptr(cox::LaunchError(cox::LaunchError::Kind::Io, "not run", here, memory));
    return std::make_exception_ptr(cox::ServerError::unhealthy({}, {launch}, 0, here));
  };
  SECTION("its value") {
    CheckBench t;
    auto outcomes = t.right();
    outcomes[0].dependent.push_back(cox::Bytes::copy_of(outcomes[0].values.front().span()));
    t.check(outcomes);
    CHECK(t.found().empty());
  }
  SECTION("another value") {
    CheckBench t;
    auto outcomes = t.right();
    outcomes[1].dependent.push_back(cox::Bytes::zeroed(400));
    t.check(outcomes);
    REQUIRE(t.found().size() == 1);
    CHECK(t.found().front().law == Law::Data);
  }
  SECTION("the cause of the round") {
    CheckBench t(Fault::Mismatch);
    const std::exception_ptr cause = error(Kind::Mismatch, "host:0 and host:1 do not agree");
    auto outcomes = CheckBench::both(cause);
    outcomes[0].dependent_error = poisoned(cause);
    t.check(outcomes);
    CHECK(t.found().empty());
  }
  SECTION("another cause") {
    CheckBench t(Fault::Mismatch);
    auto outcomes = CheckBench::both(error(Kind::Mismatch, "host:0 and host:1 do not agree"));
    outcomes[0].dependent_error = poisoned(std::make_exception_ptr(std::runtime_error("another")));
    t.check(outcomes);
    REQUIRE(t.found().size() == 1);
    CHECK(t.found().front().law == Law::Poison);
  }
  SECTION("no error though the round fails") {
    CheckBench t(Fault::Mismatch);
    auto outcomes = CheckBench::both(error(Kind::Mismatch, "host:0 and host:1 do not agree"));
    outcomes[1].dependent.push_back(cox::Bytes::zeroed(400));
    t.check(outcomes);
    REQUIRE(t.found().size() == 1);
    CHECK(t.found().front().law == Law::Poison);
  }
}
