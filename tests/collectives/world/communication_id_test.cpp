#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/communication/collective_error.hpp>
#include <coxswain/runtime/communication/communication_id.hpp>
#include <coxswain/runtime/communication/world_process.hpp>

#include <cstdint>
#include <vector>

using namespace cox;

namespace {

struct InWorld {
  explicit InWorld(std::uint16_t process) { detail::set_own_process(process); }
  InWorld(const InWorld&) = delete;
  InWorld& operator=(const InWorld&) = delete;
  ~InWorld() { detail::set_own_process(0); }
};

constexpr DeviceId named(std::uint16_t process, std::uint16_t index) {
  return {.type = 0, .index = index, .process = process};
}

}  // namespace

TEST_CASE("Devices of other processes have the names of the world, and ranks in the order of processes") {
  const InWorld world(2);
  const CommunicationId id({named(3, 0), named(0, 1), named(1, 5), named(2, 0)});
  CHECK(id.spans_processes());
  CHECK(std::vector(id.devices().begin(), id.devices().end()) ==
        std::vector{named(1, 5), named(2, 0), named(2, 1), named(3, 0)});
  CHECK(id.rank_of(named(0, 1)) == 2);
  CHECK(id.rank_of(named(2, 1)) == 2);
  CHECK(id.contains(named(0, 0)));
  CHECK_FALSE(id.contains(named(0, 5)));
  CHECK(id.to_string() == "{p0/host:5, p1/host:0, p1/host:1, p2/host:0}");
  CHECK_THROWS_AS(CommunicationId({named(0, 0), named(2, 0), named(1, 0)}), CollectiveError);  // a device twice
}

TEST_CASE("A set of devices of this process alone is the same by either name") {
  const InWorld world(2);
  const CommunicationId id({named(2, 0), named(0, 1)});
  CHECK_FALSE(id.spans_processes());
  CHECK(id == CommunicationId({named(0, 0), named(0, 1)}));
  CHECK(id.rank_of(named(2, 1)) == 1);
  CHECK(id.split(std::vector{0, 1})[1].devices().front() == named(0, 1));
}
