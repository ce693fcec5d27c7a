#include <coxswain/tools/cox/stress/canary.hpp>

#include <coxswain/tests/support/catch.hpp>

#include <utility>

using namespace cox::stress;

namespace {

Ticket ticket(Fate fate) {
  Ticket ticket;
  ticket.sequence = Sequence::of(3, 0);
  ticket.fate = fate;
  return ticket;
}

}  // namespace

TEST_CASE("A canary that runs once and is destroyed once is content, however often it moves") {
  Truth truth({{0, 0}}, 1);
  {
    Canary first(truth, ticket(Fate::Runs));
    Canary second(std::move(first));
    Canary third(std::move(second));
    third.run();
  }
  CHECK_FALSE(truth.violations().any());
  CHECK(truth.device(0).destroyed == 1);
  CHECK(truth.lane(0, 0).destroyed == Sequence::of(3, 0).value);
}

TEST_CASE("A canary complains when its closure is destroyed unrun") {
  Truth truth({{0, 0}}, 1);
  {
    const Canary canary(truth, ticket(Fate::Runs));
  }
  REQUIRE(truth.violations().all().size() == 1);
  CHECK(truth.violations().all().front().law == Law::Conservation);
}

TEST_CASE("A canary complains when its closure runs twice") {
  Truth truth({{0, 0}}, 1);
  Canary canary(truth, ticket(Fate::Runs));
  canary.run();
  CHECK_FALSE(truth.violations().any());
  canary.run();
  CHECK(truth.violations().all().size() == 1);
}

TEST_CASE("A canary complains when a cancelled closure runs, and not when it is destroyed") {
  Truth truth({{0, 0}}, 1);
  {
    const Canary canary(truth, ticket(Fate::Dropped));
  }
  CHECK_FALSE(truth.violations().any());
  Canary canary(truth, ticket(Fate::Dropped));
  canary.run();
  CHECK(truth.violations().all().size() == 1);
}
