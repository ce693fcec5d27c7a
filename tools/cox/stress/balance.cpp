#include <coxswain/tools/cox/stress/balance.hpp>

#include <coxswain/tools/cox/stress/order_auditor.hpp>

#include <string>

namespace cox::stress {
namespace {

std::string counts(const char* what, std::uint64_t count) { return std::string(what) + " " + std::to_string(count); }

}  // namespace

void check_balance(Truth& truth, std::size_t device, const Tally& expected, const Statistics& counted, bool more_fail) {
  Truth::Device& seen = truth.device(device);
  const auto require = [&](bool holds, std::string what, std::string got) {
    if (!holds)
      truth.violations().add(
          {.law = Law::Conservation, .expected = std::move(what), .got = std::move(got), .device = seen.id});
  };
  const std::uint64_t ended = counted.completed + counted.failed + counted.cancelled + counted.expired;
  require(counted.accepted == ended, counts("all accepted tasks ended when the device was idle:", counted.accepted),
          std::to_string(ended) + " ended: " + counts("completed", counted.completed) + ", " +
              counts("failed", counted.failed) + ", " + counts("cancelled", counted.cancelled) + ", " +
              counts("expired", counted.expired));
  // The clients' data operations are additional tasks, and all of them complete.
  require(counted.completed >= expected.completed, counts("completed at least", expected.completed),
          counts("completed", counted.completed));
  require(counted.failed == expected.failed || (more_fail && counted.failed > expected.failed),
          counts("failed", expected.failed), counts("failed", counted.failed));
  require(counted.cancelled == expected.cancelled, counts("cancelled", expected.cancelled),
          counts("cancelled", counted.cancelled));
  require(counted.expired == expected.expired, counts("expired", expected.expired), counts("expired", counted.expired));
  require(seen.runs == expected.audited, counts("closures run:", expected.audited), std::to_string(seen.runs));
  const std::uint64_t destroyed = seen.destroyed.load(std::memory_order_relaxed);
  require(destroyed == expected.canaries, counts("closures destroyed:", expected.canaries), std::to_string(destroyed));
  if (!seen.thrown.sequence.none()) report_lost_error(truth, seen.thrown);
}

}  // namespace cox::stress
