#pragma once

#include <coxswain/runtime/kept/kept_record.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace cox {

/// The checksum of one allocation of a kept set, in the memory of the record of its device. The device writes it in
/// stream order, before the commit of `epoch`. So it is complete if the record shows that commit.
struct KeptChecksum {
  std::uint64_t name = 0;   ///< checksum_name() of the allocation; 0: not used
  std::uint64_t epoch = 0;  ///< of the contents; 0: none
  std::uint64_t sum = 0;    ///< checksum_of() the contents
  std::uint64_t unused = 0;
};

/// The memory of a record: a KeptRecord, followed by checksums.
struct KeptRecordMemory {
  static constexpr std::size_t bytes = 64 * 1024;
  static constexpr std::size_t max_checksums = (bytes - sizeof(KeptRecord)) / sizeof(KeptChecksum);
  /// Offset of a checksum in bytes.
  [[nodiscard]] static constexpr std::size_t offset_of(std::size_t checksum) noexcept {
    return sizeof(KeptRecord) + checksum * sizeof(KeptChecksum);
  }
};

/// A 64-bit checksum of memory: the sum modulo 2^64 of its 64-bit words (little endian; the last one is filled up with
/// zeros), each of which is mixed with its position first: mix(word + (position + 1) * checksum_step). mix is the
/// finaliser of SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA 2014) with the
/// constants of Stafford's variant 13. A sum has no order, so any number of threads gets the same result. It finds
/// changes of the memory, not those that someone makes on purpose.
[[nodiscard]] std::uint64_t checksum_of(std::span<const std::byte> memory) noexcept;
inline constexpr std::uint64_t checksum_step = 0x9e3779b97f4a7c15U;

/// A number for a name: FNV-1a of 64 bits; never 0.
[[nodiscard]] std::uint64_t checksum_name(std::string_view name) noexcept;

}  // namespace cox
