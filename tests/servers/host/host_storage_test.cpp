#include <coxswain/tests/support/catch.hpp>

#include <coxswain/servers/host/memory/host_storage.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>

using cox::MemoryAddress;
using cox::detail::HostStorage;

namespace {

constexpr std::size_t granule = 4096;

unsigned char* bytes_at(MemoryAddress address) {
  return reinterpret_cast<unsigned char*>(static_cast<std::uintptr_t>(address));
}

}  // namespace

TEST_CASE("Host storage puts memory behind addresses, and takes it away with its content") {
  HostStorage storage(granule);
  const MemoryAddress base = storage.reserve(64 * granule);
  REQUIRE(base % granule == 0);
  REQUIRE(storage.map(base + granule, 2 * granule));
  std::memset(bytes_at(base + granule), 7, 2 * granule);
  storage.unmap(base + granule, granule);
  CHECK(*bytes_at(base + 2 * granule) == 7);
  REQUIRE(storage.map(base + granule, granule));
  CHECK(*bytes_at(base + granule) == 0);
  storage.unmap(base + granule, 2 * granule);
  storage.release(base, 64 * granule);
}

TEST_CASE("Host storage has one piece of memory behind several addresses, until the last is given up") {
  HostStorage storage(granule);
  const MemoryAddress base = storage.reserve(64 * granule);
  REQUIRE(storage.map(base, 4 * granule));
  *bytes_at(base + granule) = 1;
  *bytes_at(base + 2 * granule) = 2;
  REQUIRE(storage.alias(base + granule, base + 32 * granule, 2 * granule));
  CHECK(*bytes_at(base + 32 * granule) == 1);
  *bytes_at(base + 33 * granule) = 3;
  CHECK(*bytes_at(base + 2 * granule) == 3);
  storage.unmap(base, 4 * granule);
  CHECK(*bytes_at(base + 32 * granule) == 1);
  CHECK(*bytes_at(base + 33 * granule) == 3);
  storage.unmap(base + 32 * granule, 2 * granule);
  storage.release(base, 64 * granule);
}

TEST_CASE("Host storage gives memory that is not mapped back to the system") {
  HostStorage storage(std::size_t{2} << 20U);
  const std::size_t size = std::size_t{64} << 20U;
  const MemoryAddress base = storage.reserve(2 * size);
  for (int round = 0; round < 50; ++round) {  // 3.2 GB in all
    REQUIRE(storage.map(base, size));
    std::memset(bytes_at(base), round, size);
    storage.unmap(base, size);
  }
  storage.release(base, 2 * size);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_CASE("Host storage refuses more addresses than there are") {
  HostStorage storage(granule);
  CHECK_THROWS_AS(storage.reserve(std::size_t{1} << 62U), std::bad_alloc);
  CHECK_THROWS_AS(storage.reserve(~std::size_t{0}), std::bad_alloc);
}
#endif
