#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/bytes.hpp>

#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

using cox::test::mentions;
using cox::test::message_of;

using cox::Bytes;
using cox::IoError;

namespace {

template <class F>
IoError::Kind io_kind(F&& f) {
  try {
    f();
  } catch (const IoError& error) {
    return error.kind();
  }
  return IoError::Kind::Unknown;
}

}  // namespace

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
  REQUIRE(io_kind([&] { (void)bytes.as<std::uint32_t>(); }) == IoError::Kind::ElementSize);
  REQUIRE(mentions(message_of([&] { (void)bytes.to_vector<double>(); }), {"10 B", "8 B"}));
  const Bytes odd = Bytes::adopt(bytes.data() + 1, 8, nullptr, nullptr);
  REQUIRE(io_kind([&] { (void)odd.as<std::uint64_t>(); }) == IoError::Kind::ElementSize);
  REQUIRE(odd.to_vector<std::uint64_t>() == std::vector<std::uint64_t>{0});
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_CASE("Out of host memory is an error with the size") {
  const std::size_t size = std::size_t{1} << 62;
  REQUIRE(io_kind([&] { (void)Bytes::uninitialized(size); }) == IoError::Kind::OutOfHostMemory);
  REQUIRE(mentions(message_of([&] { (void)Bytes::uninitialized(size); }), {"4611686018427387904 B"}));
}
#endif
