#include <coxswain/runtime/memory/pending_positions.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <cstdint>

using namespace cox;

namespace {

constexpr StreamSlot kernels{1};

struct Clock {
  [[nodiscard]] std::uint64_t completed(StreamSlot) const { return 0; }
};

}  // namespace

TEST_CASE("The last position of a slot is kept, in whatever order they are added") {
  PendingPositions pending;
  for (const std::uint64_t position : {3U, 1U, 2U}) {
    pending.prepare();
    pending.add({kernels, position});
  }
  CHECK(pending.left(Clock{}) == StreamPositions{{kernels, 3}});
}
