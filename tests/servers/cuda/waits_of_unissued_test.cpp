#include <coxswain/servers/cuda/collective/waits_of_unissued.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <cstdint>
#include <map>

using namespace cox;
using cox::detail::WaitsOfUnissued;

namespace {

constexpr StreamSlot kernels{1};
constexpr StreamSlot transfers{2};

struct Clock {
  std::map<StreamSlot, std::uint64_t> done;
  [[nodiscard]] std::uint64_t completed(StreamSlot slot) const {
    const auto found = done.find(slot);
    return found == done.end() ? 0 : found->second;
  }
};

/// What an operation waits for in addition to `own`.
StreamPositions joined(WaitsOfUnissued& earlier, StreamPositions own, const Clock& clock, bool all_issued = false) {
  earlier.join(own, all_issued, clock);
  return own;
}

}  // namespace

TEST_CASE("An operation waits for what earlier operations that are not issued wait for") {
  Clock clock;
  WaitsOfUnissued waits;
  CHECK(joined(waits, {{kernels, 1}}, clock) == StreamPositions{{kernels, 1}});
  CHECK(joined(waits, {{kernels, 2}}, clock) == StreamPositions{{kernels, 2}});
  CHECK(joined(waits, {}, clock) == StreamPositions{{kernels, 2}});  // the later one, which covers the other
  CHECK(joined(waits, {{transfers, 7}, {transfers, 3}}, clock) ==
        StreamPositions{{transfers, 7}, {transfers, 3}, {kernels, 2}});
  CHECK(joined(waits, {{kernels, 1}}, clock) == StreamPositions{{kernels, 1}, {kernels, 2}, {transfers, 7}});
  clock.done = {{kernels, 2}};
  CHECK(joined(waits, {}, clock) == StreamPositions{{transfers, 7}});
  CHECK(joined(waits, {}, clock, true).empty());
  CHECK(joined(waits, {}, clock).empty());
}
