// Everything that Bytes can do, with every allocation failing once: nothing leaks, nothing changes, nothing is lost.

#include <coxswain/tests/runtime/counted_allocation.hpp>
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/failing_allocation.hpp>
#include <coxswain/tests/support/temporary_file.hpp>

#include <coxswain/runtime/bytes/bytes.hpp>

#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <utility>
#include <vector>

using cox::Bytes;
using cox::test::AllocationCount;
using cox::test::allocations_until_failure;
using cox::test::CountedAllocation;
using cox::test::live_blocks;
using cox::test::pattern;
using cox::test::TemporaryFile;

namespace {

/// Calls `act` on what `prepare` makes, its k-th allocation failing for k = 0, 1, ... until it passes; after each
/// failure `unchanged` must hold, and in the end nothing may be left. Returns how often it failed.
template <class Prepare, class Act, class Unchanged>
int fail_at_every_allocation(Prepare prepare, Act act, Unchanged unchanged) {
  for (int k = 0;; ++k) {
    const long blocks = live_blocks();
    bool failed = false;
    bool as_before = true;
    {
      auto subject = prepare();
      allocations_until_failure = k;
      try {
        act(subject);
      } catch (const std::exception&) {
        failed = true;
      }
      allocations_until_failure = -1;
      if (failed) as_before = unchanged(subject);
    }
    const long left = live_blocks() - blocks;
    INFO("allocation " << k);
    REQUIRE(as_before);
    REQUIRE(left == 0);
    if (!failed) return k;
  }
}

/// The same for something that changes none of the bytes.
template <class Prepare, class Act>
int fail_at_every_allocation(Prepare prepare, Act act) {
  return fail_at_every_allocation(prepare, act, [&](const Bytes& bytes) { return bytes == prepare(); });
}

}  // namespace

TEST_CASE("Making bytes takes one allocation, and none is lost when it fails") {
  const auto nothing = [] { return Bytes{}; };
  const auto content = pattern(100);
  CHECK(fail_at_every_allocation(nothing, [&](Bytes& bytes) { bytes = Bytes::copy_of(content); }) == 1);
  CHECK(fail_at_every_allocation(nothing, [](Bytes& bytes) { bytes = Bytes::zeroed(10); }) == 1);
  CHECK(fail_at_every_allocation(nothing, [](Bytes& bytes) { bytes = Bytes::from_vector(pattern(10)); }) == 2);
  CHECK(fail_at_every_allocation(nothing, [](Bytes& bytes) { bytes = Bytes::from_file("short", 0, 10); }) == 2);
  CHECK(fail_at_every_allocation(nothing, [](Bytes& bytes) { bytes = Bytes::uninitialized(0); }) == 0);
}

TEST_CASE("Adopted and shared memory is let go of when there is no room for its owner") {
  int released = 0;
  std::byte memory{};
  const auto release = [](void* context) noexcept { ++*static_cast<int*>(context); };
  const int failures = fail_at_every_allocation(
      [] { return Bytes{}; }, [&](Bytes& bytes) { bytes = Bytes::adopt(&memory, 1, &released, release); });
  CHECK(failures == 1);
  CHECK(released == 2);

  const auto keeper = std::make_shared<const int>(1);
  CHECK(fail_at_every_allocation([] { return Bytes{}; },
                                 [&](Bytes& bytes) { bytes = Bytes::from_shared(keeper, {}); }) == 1);
  CHECK(keeper.use_count() == 1);
}

TEST_CASE("A change that cannot get memory leaves the bytes, and those they share with, as they were") {
  const auto shared = Bytes::copy_of(pattern(100));
  const auto share = [&] { return shared.share(); };
  CHECK(fail_at_every_allocation(share, [](Bytes& bytes) { bytes.data()[0] = std::byte{0}; }) == 1);
  CHECK(fail_at_every_allocation(share, [](Bytes& bytes) { bytes.append(std::as_const(bytes).span()); }) == 1);
  CHECK(fail_at_every_allocation(share, [](Bytes& bytes) { bytes.reserve(1000); }) == 1);
  CHECK(fail_at_every_allocation(share, [](Bytes& bytes) { (void)bytes.copy(); }) == 1);
  CHECK(fail_at_every_allocation(share, [](Bytes& bytes) { (void)bytes.to_vector<std::uint32_t>(); }) == 1);
  CHECK(fail_at_every_allocation(share, [](Bytes& bytes) { (void)std::move(bytes).split(50); }) == 0);
  CHECK(shared == Bytes::copy_of(pattern(100)));
  AllocationCount count;
  CHECK(fail_at_every_allocation([&] { return Bytes::from_allocation(CountedAllocation::of(count, pattern(100))); },
                                 [](Bytes& bytes) { bytes.append(pattern(1)); }) >= 1);
  CHECK(count.released == count.made);
}

TEST_CASE("Bytes of a file that cannot get memory stay as they were, and can be read later") {
  const TemporaryFile file(pattern(100));
  const auto lazy = [&] { return Bytes::from_file(file.path(), 0, 100); };
  CHECK(fail_at_every_allocation(lazy, [](Bytes& bytes) { (void)std::as_const(bytes).data(); }) == 2);
  CHECK(fail_at_every_allocation(lazy, [](Bytes& bytes) { bytes.data()[0] = std::byte{0}; }) == 2);
  CHECK(fail_at_every_allocation(lazy, [](Bytes& bytes) { (void)bytes.slice(10, 10); }) == 1);
  CHECK(fail_at_every_allocation(lazy, [](Bytes& bytes) { (void)std::move(bytes).split(10); }) == 2);
  CHECK(fail_at_every_allocation(lazy, [](Bytes& bytes) { bytes.append(std::as_const(bytes).span()); }) == 3);
  CHECK(fail_at_every_allocation(lazy, [](Bytes& bytes) { const cox::BytesReader reader(bytes); }) == 1);
}
