#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace cox {

/// The operations of a server, as far as it matters to them that earlier work of their stream has failed.
enum class ServerOperation : std::uint8_t {
  Read,
  Flush,
  Sync,
  GraphPrepare,
  BeginCapture,
  MemoryUsage,
  MemoryReport,
  AllReduce,
  Launch,
  Write,
  InitializeMemory,
  Staging,
  GetResource,
  Replay,
  Send,
  Receive,
  SyncCollective,
  MemoryCleanup,
};

/// What an operation does about failures that nobody has been told yet.
enum class StreamErrorMode : std::uint8_t {
  Ignore,  ///< Goes on; the failures stay.
  Refuse,  ///< Throws ServerError Unhealthy; the failures stay.
  Take,    ///< Throws ServerError Unhealthy; the failures are told with it, and the next operation goes on.
};

[[nodiscard]] constexpr StreamErrorMode stream_error_mode(ServerOperation operation) noexcept {
  using enum StreamErrorMode;
  constexpr std::array modes{
      Take,    // Read
      Take,    // Flush
      Take,    // Sync
      Take,    // GraphPrepare
      Take,    // BeginCapture
      Refuse,  // MemoryUsage
      Refuse,  // MemoryReport
      Refuse,  // AllReduce
      Ignore,  // Launch
      Ignore,  // Write
      Ignore,  // InitializeMemory
      Ignore,  // Staging
      Ignore,  // GetResource
      Ignore,  // Replay
      Ignore,  // Send
      Ignore,  // Receive
      Ignore,  // SyncCollective
      Ignore,  // MemoryCleanup
  };
  static_assert(modes.size() == static_cast<std::size_t>(ServerOperation::MemoryCleanup) + 1);
  return modes[static_cast<std::size_t>(operation)];
}

}  // namespace cox
