#pragma once

#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/tools/cox/stress/kept_book.hpp>
#include <coxswain/tools/cox/stress/payload.hpp>

#include <cstdint>
#include <vector>

namespace cox::stress {

/// How a round ends.
enum class KeptEnd : std::uint8_t {
  Itself,  ///< between two updates
  Kill,    ///< SIGKILL
  Crash,   ///< SIGSEGV
  Exit,    ///< _exit(), at any moment
  // On GPUs, a kernel that fails:
  Trap,
  Address,    ///< writes to an invalid address
  Assertion,  ///< fails an assertion
};

/// A stress of kept sets, as its command and each of its rounds know it.
struct KeptStress {
  std::vector<DeviceId> devices;  ///< all of the host, or all GPUs
  std::uint64_t rounds = 0;       ///< after so many a process ends that only checks
  std::uint64_t seed = 0;
  Payload payload{.smallest = 64, .largest = std::size_t{256} << 10U};
  // The probabilities that a round is killed, that it crashes or exits at any moment, and that it ends by a GPU fault;
  // the others end by themselves.
  double kill = 1;
  double crash = 0;
  double fault = 0;
  /// For tests of the stress itself: the memory is also written after the commit, where the library does not see it.
  bool flawed = false;
};

/// The exit code of a round that ends by itself and is to be followed by another one.
inline constexpr int next_round_code = 75;

/// One round: opens two sets, in place and with two copies, on all devices under the supervisor of this process, checks
/// that they have the contents that their states say, and updates them until the process ends, at a random moment.
/// `round`: its number, from 0. Blocks. Returns the exit code of the process.
[[nodiscard]] int run_kept_round(const KeptStress& options, std::uint64_t round, KeptBook& book);

}  // namespace cox::stress
