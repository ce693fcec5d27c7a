#include <coxswain/tests/runtime/counted_allocation.hpp>
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/temporary_file.hpp>

#include <coxswain/runtime/bytes/bytes.hpp>
#include <coxswain/runtime/bytes/host_allocation.hpp>

#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using cox::AllocationProperty;
using cox::Bytes;
using cox::test::AllocationCount;
using cox::test::CountedAllocation;
using cox::test::pattern;

TEST_CASE("Every allocation property has its name") {
  REQUIRE(to_string(AllocationProperty::Native) == std::string("native"));
  REQUIRE(to_string(AllocationProperty::Pinned) == std::string("pinned"));
  REQUIRE(to_string(AllocationProperty::File) == std::string("file"));
  REQUIRE(to_string(AllocationProperty::Device) == std::string("device"));
  REQUIRE(to_string(AllocationProperty::Other) == std::string("other"));
}

TEST_CASE("Memory of a server is used where it is, and says what it is") {
  AllocationCount count;
  auto allocation = CountedAllocation::of(count, pattern(100));
  const std::byte* const where = allocation->data();
  Bytes bytes = Bytes::from_allocation(std::move(allocation));
  REQUIRE(bytes.property() == AllocationProperty::Pinned);
  REQUIRE(bytes.is_resident());
  REQUIRE(std::as_const(bytes).data() == where);
  REQUIRE(bytes.data() == where);  // the only owner writes in place
  REQUIRE(bytes.capacity() == 100);
  REQUIRE(bytes == Bytes::copy_of(pattern(100)));
  REQUIRE(bytes.slice(10, 5).property() == AllocationProperty::Pinned);
  REQUIRE(count.released == 0);
}

TEST_CASE("Memory of a server is given back once, by the last of those who share it, on its thread") {
  AllocationCount count;
  Bytes bytes = Bytes::from_allocation(CountedAllocation::of(count, pattern(64)));
  Bytes part = bytes.slice(8, 8);
  Bytes again = bytes.share();
  bytes = Bytes{};
  again = Bytes::zeroed(4);
  REQUIRE(count.released == 0);
  std::thread other([last = std::move(part)]() mutable { last = Bytes{}; });
  const auto other_id = other.get_id();
  other.join();
  REQUIRE(count.released == 1);
  REQUIRE(count.released_on == other_id);
}

TEST_CASE("Threads that drop their shares at the same time give the memory back once") {
  constexpr int threads = 4;
  for (int round = 0; round < 200; ++round) {
    AllocationCount count;
    {
      std::latch start(threads);
      std::vector<std::jthread> droppers;
      Bytes bytes = Bytes::from_allocation(CountedAllocation::of(count, pattern(16)));
      for (int i = 0; i < threads; ++i)
        droppers.emplace_back([&start, share = i + 1 < threads ? bytes.share() : std::move(bytes)]() mutable {
          start.arrive_and_wait();
          const Bytes dropped = std::move(share);
        });
    }
    REQUIRE(count.released == 1);
  }
}

TEST_CASE("Memory of a server is given back when the bytes are assigned over, also by themselves") {
  AllocationCount count;
  Bytes bytes = Bytes::from_allocation(CountedAllocation::of(count, pattern(8)));
  Bytes& same = bytes;
  bytes = std::move(same);
  REQUIRE(count.released == 0);
  REQUIRE(bytes.size() == 8);
  bytes = Bytes::from_allocation(CountedAllocation::of(count, pattern(9)));
  REQUIRE(count.released == 1);
  bytes = Bytes{};
  REQUIRE(count.released == 2);
}

TEST_CASE("A change to shared memory of a server goes to a copy that is native, and leaves that memory alone") {
  AllocationCount count;
  const Bytes pinned = Bytes::from_allocation(CountedAllocation::of(count, pattern(32)));
  Bytes changed = pinned.share();
  changed.data()[0] = std::byte{0};
  REQUIRE(changed.property() == AllocationProperty::Native);
  REQUIRE(pinned.property() == AllocationProperty::Pinned);
  REQUIRE(pinned == Bytes::copy_of(pattern(32)));
  REQUIRE(count.released == 0);
}

TEST_CASE("An allocation of no size is kept and given back as any other, and null is no allocation") {
  AllocationCount count;
  {
    Bytes bytes = Bytes::from_allocation(CountedAllocation::of(count, {}));
    REQUIRE(bytes.empty());
    REQUIRE(bytes.property() == AllocationProperty::Pinned);
    REQUIRE(bytes.span().empty());
    REQUIRE(count.released == 0);
  }
  REQUIRE(count.released == 1);
  REQUIRE(Bytes::from_allocation(nullptr).empty());
}
