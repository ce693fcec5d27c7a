#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/temporary_file.hpp>

#include <coxswain/runtime/bytes/bytes.hpp>

#include <span>
#include <utility>
#include <vector>

using cox::AllocationProperty;
using cox::Bytes;
using cox::test::pattern;

TEST_CASE("Appended bytes follow, and the memory grows in ever larger steps") {
  Bytes bytes;
  int moves = 0;
  const auto all = pattern(100'000);
  for (std::size_t i = 0; i < all.size(); i += 10) {
    const std::byte* const before = std::as_const(bytes).data();
    bytes.append(std::span(all).subspan(i, 10));
    if (std::as_const(bytes).data() != before) ++moves;
  }
  REQUIRE(bytes == Bytes::copy_of(all));
  REQUIRE(moves < 20);
}

TEST_CASE("Reserved room is appended to in place") {
  Bytes bytes = Bytes::copy_of(pattern(10));
  bytes.reserve(100);
  REQUIRE(bytes.capacity() == 100);
  REQUIRE(bytes.size() == 10);
  const std::byte* const where = std::as_const(bytes).data();
  bytes.append(std::as_const(bytes).span());
  bytes.append(pattern(80));
  REQUIRE(std::as_const(bytes).data() == where);
  REQUIRE(bytes.size() == 100);
  REQUIRE(bytes.slice(10, 10) == Bytes::copy_of(pattern(10)));
  bytes.reserve(50);
  REQUIRE(std::as_const(bytes).data() == where);
}

TEST_CASE("Bytes may be appended to themselves while they move") {
  Bytes bytes = Bytes::copy_of(pattern(1000));
  bytes.append(std::as_const(bytes).span().subspan(500));
  REQUIRE(bytes.size() == 1500);
  REQUIRE(bytes.slice(1000, 500) == bytes.slice(500, 500));
}

TEST_CASE("Appending to shared bytes leaves the others as they were") {
  const Bytes whole = Bytes::copy_of(pattern(100));
  Bytes part = whole.slice(0, 10);
  REQUIRE(part.capacity() == 10);
  part.append(pattern(5, 1));
  REQUIRE(part.slice(10, 5) == Bytes::copy_of(pattern(5, 1)));
  REQUIRE(whole == Bytes::copy_of(pattern(100)));
}

TEST_CASE("Appending nothing changes nothing, and nothing can be appended to") {
  const Bytes whole = Bytes::copy_of(pattern(100));
  Bytes share = whole.share();
  share.append({});
  REQUIRE(std::as_const(share).data() == whole.data());
  Bytes empty;
  empty.append({});
  REQUIRE(empty.empty());
  empty.reserve(0);
  REQUIRE(empty.capacity() == 0);
}

TEST_CASE("Appending to the bytes of a file reads them first, and they are native then") {
  const cox::test::TemporaryFile file(pattern(100));
  Bytes bytes = Bytes::from_file(file.path(), 50, 50);
  REQUIRE(bytes.capacity() == 50);
  bytes.append(pattern(3, 1));
  REQUIRE(bytes.property() == AllocationProperty::Native);
  REQUIRE(bytes.slice(0, 50) == Bytes::copy_of(pattern(100)).slice(50, 50));
  REQUIRE(bytes.slice(50, 3) == Bytes::copy_of(pattern(3, 1)));
}
