#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <source_location>

namespace cox {

/// The operations of a server. They differ in what they do when earlier work of their stream has failed: see
/// stream_error_mode().
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

/// What an operation does about failures of its stream that have not been delivered yet.
enum class StreamErrorMode : std::uint8_t {
  Ignore,  ///< Proceeds; the failures stay.
  Refuse,  ///< Throws ServerError Unhealthy; the failures stay.
  Take,    ///< Throws ServerError Unhealthy, which delivers the failures; the next operation proceeds.
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

/// Called before an operation of a stream. Throws ServerError Unhealthy if earlier work of the stream has failed,
/// unless the operation ignores failures (StreamErrorMode::Ignore).
/// Stream: take_errors(site) and peek_errors(site) return the error, or null.
template <class Stream>
void require_healthy(Stream& stream, ServerOperation operation, std::source_location site) {
  std::exception_ptr error;
  switch (stream_error_mode(operation)) {
    case StreamErrorMode::Ignore: return;
    case StreamErrorMode::Refuse: error = stream.peek_errors(site); break;
    case StreamErrorMode::Take: error = stream.take_errors(site); break;
  }
  if (error != nullptr) std::rethrow_exception(error);
}

}  // namespace cox
