#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace cox::test {

/// Memory that the processes of a communicator of the library that stands in for NCCL share: a file, which the unique
/// id names. Each rank writes its input there, and reads those of the others.
struct FakeNcclShared {
  static constexpr std::size_t most_ranks = 8;
  static constexpr std::size_t most_bytes = std::size_t{8} << 20U;  // of a rank's input, and of a message

  /// A rank's place in the operations of all ranks, or the messages from one rank to another.
  struct Channel {
    std::atomic<std::uint64_t> written{0};  ///< so many inputs have been written
    std::atomic<std::uint64_t> read{0};     ///< so many operations has the rank (the receiver) read
  };
  struct Rank {
    std::atomic<std::uint32_t> attached{0};  ///< to this communicator
    std::atomic<std::uint32_t> split{0};     ///< so many splits has the rank begun
    std::atomic<std::uint32_t> aborted{0};
    Channel all;
    Channel to[most_ranks];
  };
  Rank ranks[most_ranks];

  // Behind it, in the same file, which is sparse: the input of each rank, then the messages from each rank to each.
  [[nodiscard]] std::byte* input(std::size_t rank) noexcept {
    return reinterpret_cast<std::byte*>(this) + header + rank * most_bytes;
  }
  [[nodiscard]] std::byte* message(std::size_t from, std::size_t to) noexcept {
    return input(most_ranks + from * most_ranks + to);
  }
  static constexpr std::size_t header = 16384;
  static constexpr std::size_t bytes = header + (most_ranks + most_ranks * most_ranks) * most_bytes;
};
static_assert(sizeof(FakeNcclShared) <= FakeNcclShared::header);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

}  // namespace cox::test
