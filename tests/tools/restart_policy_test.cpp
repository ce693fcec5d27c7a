#include <coxswain/tools/cox/supervisor/restart_policy.hpp>

#include <coxswain/tests/support/catch.hpp>

using namespace std::chrono_literals;
using cox::tools::RestartLimits;
using cox::tools::RestartPolicy;

namespace {

const RestartPolicy::Clock::time_point start{};

}  // namespace

TEST_CASE("The back-off doubles up to its limit") {
  RestartPolicy policy({.restarts = 10, .within = 1h, .backoff = 1s, .backoff_max = 5s});
  for (const auto delay : {1s, 2s, 4s, 5s, 5s}) CHECK(policy.restart(start, 0s) == delay);
}

TEST_CASE("A run as long as the longest back-off starts the back-off anew") {
  RestartPolicy policy({.restarts = 10, .within = 1h, .backoff = 1s, .backoff_max = 1min});
  CHECK(policy.restart(start, 59s) == 1s);
  CHECK(policy.restart(start, 59s) == 2s);
  CHECK(policy.restart(start, 60s) == 1s);
  CHECK(policy.restart(start, 0s) == 2s);
}

TEST_CASE("A back-off of nothing stays that, and the longest time does not overflow") {
  RestartPolicy none({.restarts = 10, .within = 1h, .backoff = 0s, .backoff_max = 1min});
  CHECK(none.restart(start, 0s) == 0s);
  CHECK(none.restart(start, 0s) == 0s);
  const auto longest = std::chrono::nanoseconds::max();
  RestartPolicy far({.restarts = 10, .within = 1h, .backoff = longest - 1ns, .backoff_max = longest});
  CHECK(far.restart(start, 0s) == longest - 1ns);
  CHECK(far.restart(start, 0s) == longest);
}

TEST_CASE("The limit counts the restarts within the time before now") {
  RestartPolicy policy({.restarts = 2, .within = 1h, .backoff = 1s, .backoff_max = 1s});
  CHECK(policy.restart(start, 0s));
  CHECK(policy.restart(start + 30min, 0s));
  CHECK_FALSE(policy.restart(start + 59min, 0s));
  CHECK(policy.restart(start + 60min, 0s));
  CHECK_FALSE(policy.restart(start + 61min, 0s));
}
