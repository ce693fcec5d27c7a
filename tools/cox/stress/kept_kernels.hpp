#pragma once

#include <coxswain/runtime/handle/handle.hpp>
#include <coxswain/runtime/launch/kernel_arguments.hpp>
#include <coxswain/servers/host/server/host_server.hpp>
#include <coxswain/tools/cox/stress/kept_round.hpp>
#include <coxswain/tools/cox/stress/random.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

namespace cox::stress {

/// The word that the update of that epoch writes there.
[[nodiscard]] constexpr std::uint64_t kept_word(std::uint64_t epoch, std::uint64_t place, std::size_t index) noexcept {
  return Random::derived(epoch, place * 0x100000001U + index);
}

/// What the kept stress does on the devices of a kind of client.
template <class Client>
struct KeptKernels;

template <>
struct KeptKernels<HostClient> {
  /// Rounds are ended within this time while their sets are opened, and while they update them.
  static constexpr std::chrono::microseconds opening{8'000};
  static constexpr std::chrono::microseconds updating{30'000};

  static void prepare(const HostClient& client) { static_cast<void>(client); }
  /// Writes the words of an update.
  static void write(const HostClient& client, const Handle& memory, Access access, std::size_t count,
                    std::uint64_t epoch, std::uint64_t place) {
    client.call(KernelArguments().with_buffer(memory, access), [=](std::span<void* const> pointers) {
      auto* const words = static_cast<volatile std::uint64_t*>(pointers[0]);
      for (std::size_t i = 0; i < count; ++i) words[i] = kept_word(epoch, place, i);
    });
  }
  static void fail(const HostClient& client, KeptEnd end) {
    static_cast<void>(client);
    static_cast<void>(end);
  }
};

}  // namespace cox::stress
