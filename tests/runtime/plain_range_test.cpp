#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/bytes/bytes.hpp>
#include <coxswain/runtime/bytes/plain_range.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

using cox::Bytes;
using cox::PlainRange;

static_assert(PlainRange<std::vector<float>> && PlainRange<std::span<const float>> && PlainRange<std::span<float>>);
static_assert(PlainRange<std::array<const int, 3>> && PlainRange<double[4]> && PlainRange<std::string>);
static_assert(!PlainRange<std::vector<bool>> && !PlainRange<std::list<int>> && !PlainRange<int>);
static_assert(!PlainRange<std::vector<float*>> && !PlainRange<std::span<const char* const>> &&
              !PlainRange<int std::string::* [2]> && PlainRange<std::vector<std::uintptr_t>>);
static_assert(!PlainRange<std::vector<std::string>> && !PlainRange<std::vector<std::unique_ptr<int>>>);

template <class T>
concept BecomesBytes = requires(std::vector<T> elements) { Bytes::from_vector(std::move(elements)); };
static_assert(BecomesBytes<float> && BecomesBytes<std::uintptr_t>);
static_assert(!BecomesBytes<float*> && !BecomesBytes<const void*> && !BecomesBytes<bool> && !BecomesBytes<std::string>);

TEST_CASE("Bytes are copied from vectors, spans and arrays of const elements or not") {
  const std::vector<std::uint32_t> expected{1, 2, 3};
  std::vector<std::uint32_t> vector = expected;
  const std::array<std::uint32_t, 3> array{1, 2, 3};
  const std::uint32_t plain[] = {1, 2, 3};
  CHECK(Bytes::copy_of(vector).to_vector<std::uint32_t>() == expected);
  CHECK(Bytes::copy_of(std::vector<std::uint32_t>{1, 2, 3}).to_vector<std::uint32_t>() == expected);
  CHECK(Bytes::copy_of(std::span(vector)).to_vector<std::uint32_t>() == expected);
  CHECK(Bytes::copy_of(std::span<const std::uint32_t>(vector)).to_vector<std::uint32_t>() == expected);
  CHECK(Bytes::copy_of(std::span<std::uint32_t, 3>(vector)).to_vector<std::uint32_t>() == expected);
  CHECK(Bytes::copy_of(array).to_vector<std::uint32_t>() == expected);
  CHECK(Bytes::copy_of(plain).to_vector<std::uint32_t>() == expected);
  CHECK(Bytes::copy_of(std::as_bytes(std::span(vector))).to_vector<std::uint32_t>() == expected);
  CHECK(Bytes::copy_of(std::as_writable_bytes(std::span(vector))).to_vector<std::uint32_t>() == expected);
  CHECK(Bytes::copy_of(std::vector<float>{}).empty());
  CHECK(Bytes::copy_of({}).empty());
}
