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

/// What a client who has waited for a place in a stream finds done. On any thread, once the device has come there.
struct SyncPoint {
  std::shared_ptr<CudaStream> stream;
  std::uint64_t sequence;  ///< of the place, among the errors of the stream
  std::source_location site;
  std::shared_ptr<HeldBytes> held = nullptr;  ///< what was uploaded before, which is given back; null: nothing
  /// Where work before may still fail; ends when the failures have been taken, or nobody will take them.
  std::optional<StreamErrors::Turn> turn = std::nullopt;

  /// Throws a fault of the GPU; else, as TakenError, work before the place that has failed since it was issued, such as
  /// a collective that was aborted: together with `earlier`, which had failed by then.
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
