#include <coxswain/runtime/kept/kept_checksum.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <set>
#include <string>
#include <utility>
#include <vector>

using namespace cox;

namespace {

std::vector<std::byte> bytes_of(const std::vector<std::uint64_t>& words) {
  std::vector<std::byte> bytes(words.size() * sizeof(std::uint64_t));
  std::memcpy(bytes.data(), words.data(), bytes.size());
  return bytes;
}

}  // namespace

TEST_CASE("The checksum of zeros is the sum of the numbers of SplitMix64 with the seed 0") {
  // As published for its finaliser; the state grows by checksum_step before each number.
  const std::uint64_t first = 0xe220a8397b1dcdafU;
  const std::uint64_t second = 0x6e789e6aa1b965f4U;
  const std::vector<std::byte> zeros(16);
  CHECK(checksum_of(std::span(zeros).first(8)) == first);
  CHECK(checksum_of(zeros) == first + second);
  CHECK(checksum_of({}) == 0);
}

TEST_CASE("Each bit and each position counts in a checksum, also in the last bytes") {
  for (const std::size_t size : {std::size_t{1}, std::size_t{7}, std::size_t{8}, std::size_t{9}, std::size_t{100}}) {
    std::vector<std::byte> memory(size, std::byte{0x5a});
    std::set<std::uint64_t> sums{checksum_of(memory)};
    for (std::byte& each : memory)
      for (unsigned bit = 0; bit < 8; ++bit) {
        each ^= std::byte{1} << bit;
        sums.insert(checksum_of(memory));
        each ^= std::byte{1} << bit;
      }
    CHECK(sums.size() == 8 * size + 1);
  }
  const std::vector<std::uint64_t> words{1, 2, 3, 4};
  const std::vector<std::uint64_t> exchanged{1, 3, 2, 4};
  const std::vector<std::uint64_t> moved{2, 3, 4, 1};
  CHECK(checksum_of(bytes_of(words)) != checksum_of(bytes_of(exchanged)));
  CHECK(checksum_of(bytes_of(words)) != checksum_of(bytes_of(moved)));
}

TEST_CASE("The number of a name is that of FNV-1a, and never 0") {
  CHECK(checksum_name("") == 0xcbf29ce484222325U);
  CHECK(checksum_name("a") == 0xaf63dc4c8601ec8cU);
  CHECK(checksum_name("foobar") == 0x85944171f73967e8U);
}

TEST_CASE("Checksums lie in the memory of the record, one after the other") {
  CHECK(KeptRecordMemory::offset_of(0) == sizeof(KeptRecord));
  CHECK(KeptRecordMemory::offset_of(KeptRecordMemory::max_checksums) == KeptRecordMemory::bytes);
}
