#pragma once

#include <coxswain/servers/cuda/driver/fault_report.hpp>
#include <coxswain/servers/cuda/stream/cuda_stream.hpp>
#include <coxswain/servers/cuda/stream/held_bytes.hpp>

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <source_location>

namespace cox::detail {

/// Completes a client's wait for a position in a stream. Any thread, after the device has reached the position.
struct SyncPoint {
  std::shared_ptr<CudaStream> stream;
  std::uint64_t sequence;  ///< the position among the errors of the stream
  std::source_location site;
  std::shared_ptr<HeldBytes> held = nullptr;  ///< host memory of earlier work, which complete() releases; null: none
  /// Set if earlier work may still fail. Destroyed when the failures have been taken, or will not be taken.
  std::optional<StreamErrors::Turn> turn = std::nullopt;

  /// Throws a GPU fault. Otherwise throws, as TakenError, the failures of earlier work since it was issued (such as an
  /// aborted collective), together with `earlier`, which were known when it was issued.
  void complete(const TakenError& earlier = {}) {
    if (held != nullptr) held->release();
    if (gpu_faulted()) throw_gpu_fault(site);
    auto all =
        earlier ? stream->take_later_errors(earlier, sequence, site) : stream->take_errors_before(sequence, site);
    turn.reset();
    if (all && all.error != earlier.error) throw TakenError(std::move(all));
  }
};

}  // namespace cox::detail
