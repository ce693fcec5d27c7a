#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/temporary_file.hpp>

#include <coxswain/runtime/bytes/bytes.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <latch>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

using Catch::Matchers::ContainsSubstring;
using cox::AccessPolicy;
using cox::AllocationProperty;
using cox::Bytes;
using cox::IoError;
using cox::test::kind_of;
using cox::test::message_of;
using cox::test::pattern;

TEST_CASE("Shared bytes are one memory until one of them is written to") {
  Bytes first = Bytes::copy_of(pattern(100));
  Bytes second = first.share();
  REQUIRE(std::as_const(first).data() == std::as_const(second).data());
  second.data()[3] = std::byte{0};
  REQUIRE(std::as_const(first).data() != std::as_const(second).data());
  REQUIRE(first == Bytes::copy_of(pattern(100)));
  REQUIRE(std::as_const(second).data()[3] == std::byte{0});
  const std::byte* const where = std::as_const(first).data();
  REQUIRE(first.data() == where);  // the other one has left: no copy
}

TEST_CASE("A typed write to shared bytes copies too") {
  Bytes first = Bytes::copy_of(std::vector<std::uint32_t>{1, 2, 3});
  Bytes second = first.share();
  second.as<std::uint32_t>()[1] = 7;
  REQUIRE(first.to_vector<std::uint32_t>() == std::vector<std::uint32_t>{1, 2, 3});
  REQUIRE(second.to_vector<std::uint32_t>() == std::vector<std::uint32_t>{1, 7, 3});
}

TEST_CASE("An access that must not copy is refused where it would, and nowhere else") {
  Bytes first = Bytes::copy_of(pattern(100));
  REQUIRE(first.span(AccessPolicy::ZeroCopy).size() == 100);
  const Bytes second = first.share();
  REQUIRE(second.span(AccessPolicy::ZeroCopy).data() == std::as_const(first).data());
  REQUIRE(kind_of<IoError>([&] { (void)first.span(AccessPolicy::ZeroCopy); }) == IoError::Kind::WouldCopy);
  REQUIRE_THAT(message_of([&] { (void)first.span(AccessPolicy::ZeroCopy); }), ContainsSubstring("100 B"));
  REQUIRE(std::as_const(first).data() == second.data());
}

TEST_CASE("A slice keeps the memory alive when the whole is gone, and is then the only owner") {
  const auto all = pattern(1000);
  std::optional<Bytes> whole = Bytes::copy_of(all);
  Bytes part = whole->slice(100, 50);
  const std::byte* const where = std::as_const(*whole).data() + 100;
  whole.reset();
  REQUIRE(std::as_const(part).data() == where);
  REQUIRE(std::ranges::equal(std::as_const(part).span(), std::span(all).subspan(100, 50)));
  REQUIRE(part.data() == where);
}

TEST_CASE("A write to a slice copies the slice alone, and a slice of a slice counts from its start") {
  const Bytes whole = Bytes::copy_of(pattern(1000));
  Bytes part = whole.slice(100, 50).slice(10, 20);
  REQUIRE(std::as_const(part).data() == whole.data() + 110);
  part.span().front() = std::byte{0};
  REQUIRE(part.size() == 20);
  REQUIRE(part.capacity() == 20);
  REQUIRE(whole == Bytes::copy_of(pattern(1000)));
}

TEST_CASE("Slices may be empty anywhere within the bytes, and reach nowhere beyond them") {
  const Bytes whole = Bytes::copy_of(pattern(10));
  REQUIRE(whole.slice(0, 10) == whole);
  REQUIRE(whole.slice(0, 0).empty());
  REQUIRE(whole.slice(10, 0).empty());
  REQUIRE(Bytes{}.slice(0, 0).empty());
  const std::vector<std::pair<std::size_t, std::size_t>> beyond{
      {11, 0}, {10, 1}, {0, 11}, {SIZE_MAX, 2}, {2, SIZE_MAX}};
  for (const auto& range : beyond)
    REQUIRE(kind_of<IoError>([&] { (void)whole.slice(range.first, range.second); }) == IoError::Kind::OutOfBounds);
  REQUIRE_THAT(message_of([&] { (void)whole.slice(7, 4); }),
               ContainsSubstring("4 B at offset 7") && ContainsSubstring("10 B"));
}

TEST_CASE("Split bytes are the two parts, without a copy, and the whole is empty") {
  Bytes whole = Bytes::copy_of(pattern(100));
  const std::byte* const where = std::as_const(whole).data();
  auto [left, right] = std::move(whole).split(30);
  REQUIRE(whole.empty());  // NOLINT(bugprone-use-after-move): promised
  REQUIRE(std::as_const(left).data() == where);
  REQUIRE(std::as_const(right).data() == where + 30);
  REQUIRE(left.size() == 30);
  REQUIRE(right.size() == 70);
  left.data()[29] = std::byte{0};
  REQUIRE(right == Bytes::copy_of(pattern(100)).slice(30, 70));
}

TEST_CASE("Bytes can be split at their start and at their end, and not beyond it") {
  Bytes at_start = Bytes::copy_of(pattern(10));
  const auto [nothing, all] = std::move(at_start).split(0);
  REQUIRE(nothing.empty());
  REQUIRE(all == Bytes::copy_of(pattern(10)));
  Bytes at_end = Bytes::copy_of(pattern(10));
  const auto [everything, none] = std::move(at_end).split(10);
  REQUIRE(everything == Bytes::copy_of(pattern(10)));
  REQUIRE(none.empty());
  Bytes kept = Bytes::copy_of(pattern(10));
  REQUIRE(kind_of<IoError>([&] { (void)std::move(kept).split(11); }) == IoError::Kind::OutOfBounds);
  REQUIRE(kept == Bytes::copy_of(pattern(10)));  // NOLINT(bugprone-use-after-move): nothing has changed
}

TEST_CASE("Memory that others look at is kept as long as needed and never written to") {
  const auto keeper = std::make_shared<const std::vector<std::byte>>(pattern(20));
  Bytes bytes = Bytes::from_shared(keeper, *keeper);
  REQUIRE(bytes.property() == AllocationProperty::Other);
  REQUIRE(std::as_const(bytes).data() == keeper->data());
  REQUIRE(keeper.use_count() == 2);
  REQUIRE(kind_of<IoError>([&] { (void)bytes.span(AccessPolicy::ZeroCopy); }) == IoError::Kind::WouldCopy);
  bytes.data()[0] = std::byte{0};
  REQUIRE(keeper.use_count() == 1);
  REQUIRE(*keeper == pattern(20));

  static constexpr std::array<std::byte, 3> constants{std::byte{1}, std::byte{2}, std::byte{3}};
  const Bytes fixed = Bytes::from_shared(nullptr, constants, AllocationProperty::Native);
  REQUIRE(fixed.data() == constants.data());
  REQUIRE(fixed.property() == AllocationProperty::Native);
}

TEST_CASE("Threads that write to their shares of one memory do not see each other") {
  constexpr std::size_t threads = 4;
  constexpr std::size_t size = 2000;
  const Bytes base = Bytes::copy_of(pattern(size));
  std::array<std::size_t, threads> wrong{};
  for (int round = 0; round < 50; ++round) {
    std::latch start(threads);
    std::vector<std::jthread> writers;
    for (std::size_t t = 0; t < threads; ++t)
      writers.emplace_back([&, t, mine = base.slice(t, size - t)]() mutable {
        start.arrive_and_wait();
        Bytes again = mine.share();
        std::ranges::fill(mine.span(), static_cast<std::byte>(t));
        wrong[t] += static_cast<std::size_t>(std::ranges::count_if(
            std::as_const(mine).span(), [t](std::byte b) { return b != static_cast<std::byte>(t); }));
        if (!(again == base.slice(t, size - t))) ++wrong[t];
        again.append(std::as_const(mine).span());
        if (again.size() != 2 * (size - t)) ++wrong[t];
      });
  }
  REQUIRE(wrong == std::array<std::size_t, threads>{});
  REQUIRE(base == Bytes::copy_of(pattern(size)));
}

TEST_CASE("Two owners that both come to write at once end up with a memory each") {
  for (int round = 0; round < 500; ++round) {
    std::array<Bytes, 2> owners{Bytes::copy_of(pattern(100)), {}};
    owners[1] = owners[0].share();
    {
      std::latch start(2);
      std::vector<std::jthread> writers;
      for (std::size_t t = 0; t < 2; ++t)
        writers.emplace_back([&, t] {
          start.arrive_and_wait();
          std::ranges::fill(owners[t].span(), static_cast<std::byte>(t));
        });
    }
    REQUIRE(owners[0] == Bytes::zeroed(100));
    REQUIRE(std::as_const(owners[1]).data()[99] == std::byte{1});
    REQUIRE(std::as_const(owners[0]).data() != std::as_const(owners[1]).data());
  }
}
