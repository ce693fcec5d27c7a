#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/bytes/bytes.hpp>

#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

using Catch::Matchers::ContainsSubstring;
using cox::AllocationProperty;
using cox::Bytes;
using cox::IoError;
using cox::test::kind_of;
using cox::test::message_of;

TEST_CASE("Bytes copy what they are made of, and start at a multiple of 64") {
  std::vector<std::uint32_t> numbers(1000);
  std::iota(numbers.begin(), numbers.end(), 0U);
  const Bytes bytes = Bytes::copy_of(numbers);
  REQUIRE(bytes.size() == 4000);
  REQUIRE(reinterpret_cast<std::uintptr_t>(bytes.data()) % Bytes::alignment == 0);
  REQUIRE(bytes.to_vector<std::uint32_t>() == numbers);
  REQUIRE(bytes.as<std::uint32_t>()[999] == 999);
}

TEST_CASE("Bytes take a vector over without copying it") {
  std::vector<float> numbers{1, 2, 3};
  const float* const where = numbers.data();
  Bytes bytes = Bytes::from_vector(std::move(numbers));
  REQUIRE(bytes.as<float>().data() == where);
  bytes.as<float>()[1] = 5;
  REQUIRE(bytes.to_vector<float>() == std::vector<float>{1, 5, 3});
}

TEST_CASE("Bytes release adopted memory once, also when moved from and assigned over") {
  int released = 0;
  std::byte memory{};
  const auto release = [](void* context) noexcept { ++*static_cast<int*>(context); };
  {
    Bytes first = Bytes::adopt(&memory, 1, &released, release);
    Bytes second = std::move(first);
    REQUIRE(first.empty());  // NOLINT(bugprone-use-after-move): promised
    second = Bytes::zeroed(8);
    REQUIRE(released == 1);
    REQUIRE(second == Bytes::zeroed(8));
  }
  REQUIRE(released == 1);
}

TEST_CASE("Bytes of no size are valid and empty") {
  REQUIRE(Bytes::uninitialized(0).empty());
  REQUIRE(Bytes::copy_of(std::span<const std::byte>{}).as<double>().empty());
}

TEST_CASE("A view of a wrong element size or alignment is refused with the sizes") {
  Bytes bytes = Bytes::zeroed(10);
  REQUIRE(kind_of<IoError>([&] { (void)bytes.as<std::uint32_t>(); }) == IoError::Kind::ElementSize);
  REQUIRE_THAT(message_of([&] { (void)bytes.to_vector<double>(); }),
               ContainsSubstring("10 B") && ContainsSubstring("8 B"));
  const Bytes odd = Bytes::adopt(bytes.data() + 1, 8, nullptr, nullptr);
  REQUIRE(kind_of<IoError>([&] { (void)odd.as<std::uint64_t>(); }) == IoError::Kind::ElementSize);
  REQUIRE(odd.to_vector<std::uint64_t>() == std::vector<std::uint64_t>{0});
  const Bytes aligned = Bytes::zeroed(12);
  Bytes part = aligned.slice(2, 8);
  REQUIRE(kind_of<IoError>([&] { (void)std::as_const(part).as<std::uint32_t>(); }) == IoError::Kind::ElementSize);
  REQUIRE_THAT(message_of([&] { (void)std::as_const(part).as<std::uint32_t>(); }),
               ContainsSubstring("multiple of 4 B"));
  REQUIRE(part.as<std::uint32_t>().size() == 2);  // what is written to has been copied, to where all types fit
}

TEST_CASE("A vector comes back out without a copy if all of it is there, is nobody else's, and has that type") {
  std::vector<float> numbers{1, 2, 3};
  const float* const where = numbers.data();
  Bytes bytes = Bytes::from_vector(std::move(numbers));
  REQUIRE_FALSE(std::move(bytes).try_into_vector<std::int32_t>());
  {
    // NOLINTNEXTLINE(bugprone-use-after-move): nothing has changed
    const Bytes share = bytes.share();
    REQUIRE_FALSE(std::move(bytes).try_into_vector<float>());
  }
  REQUIRE(bytes.size() == 12);  // NOLINT(bugprone-use-after-move): nothing has changed
  const auto back = std::move(bytes).try_into_vector<float>();
  REQUIRE(back == std::vector<float>{1, 2, 3});
  REQUIRE(back->data() == where);
  REQUIRE(bytes.empty());  // NOLINT(bugprone-use-after-move): promised

  std::optional<Bytes> whole = Bytes::from_vector(std::vector<float>{1, 2, 3});
  Bytes part = whole->slice(0, 8);
  whole.reset();
  REQUIRE_FALSE(std::move(part).try_into_vector<float>());
  REQUIRE_FALSE(Bytes::zeroed(4).try_into_vector<float>());
  REQUIRE_FALSE(Bytes{}.try_into_vector<float>());
}

TEST_CASE("Moved-from bytes are empty and as good as new") {
  Bytes first = Bytes::copy_of(std::vector<int>{1, 2});
  const Bytes second(std::move(first));
  // NOLINTBEGIN(bugprone-use-after-move): promised
  REQUIRE(first.empty());
  REQUIRE(first.data() == nullptr);
  REQUIRE(first.is_resident());
  REQUIRE(first.capacity() == 0);
  REQUIRE(first.property() == AllocationProperty::Native);
  REQUIRE(first == Bytes{});
  REQUIRE(first.share().empty());
  first.append(second.span());
  REQUIRE(first == second);
  // NOLINTEND(bugprone-use-after-move)
}

TEST_CASE("Bytes are equal if size and content are, wherever they are kept") {
  const std::vector<std::uint16_t> numbers{1, 2, 3};
  REQUIRE(Bytes::copy_of(numbers) == Bytes::from_vector(numbers));
  REQUIRE_FALSE(Bytes::copy_of(numbers) == Bytes::zeroed(6));
  REQUIRE_FALSE(Bytes::zeroed(5) == Bytes::zeroed(6));
  REQUIRE(Bytes::zeroed(0) == Bytes::from_vector(std::vector<int>{}));
}

TEST_CASE("A part is copied out from any offset within the bytes") {
  const Bytes bytes = Bytes::copy_of(std::vector<std::uint8_t>{1, 2, 3, 4, 5});
  std::vector<std::uint8_t> out(2);
  bytes.copy_to(std::as_writable_bytes(std::span(out)), 3);
  REQUIRE(out == std::vector<std::uint8_t>{4, 5});
  REQUIRE(kind_of<IoError>([&] { bytes.copy_to(std::as_writable_bytes(std::span(out)), 4); }) ==
          IoError::Kind::OutOfBounds);
  bytes.copy_to({}, 5);
  REQUIRE(kind_of<IoError>([&] { bytes.copy_to({}, 6); }) == IoError::Kind::OutOfBounds);
}

static_assert(!std::is_copy_constructible_v<Bytes> && std::is_nothrow_move_constructible_v<Bytes> &&
              std::is_nothrow_move_assignable_v<Bytes>);

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_CASE("Out of host memory is an error with the size") {
  const std::size_t size = std::size_t{1} << 62;
  REQUIRE(kind_of<IoError>([&] { (void)Bytes::uninitialized(size); }) == IoError::Kind::OutOfHostMemory);
  REQUIRE_THAT(message_of([&] { (void)Bytes::uninitialized(size); }), ContainsSubstring("4611686018427387904 B"));
}
#endif
