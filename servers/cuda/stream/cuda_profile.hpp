#pragma once

#include <coxswain/runtime/profile/profile_ticks.hpp>
#include <coxswain/servers/cuda/event/cuda_event.hpp>

#include <cstdint>
#include <exception>
#include <memory>

namespace cox::detail {

/// A profile between its two events on the stream.
struct CudaProfile {
  std::shared_ptr<CudaEvent> begin;
  std::shared_ptr<CudaEvent> end;
  std::uint64_t begin_sequence = 0;
  std::exception_ptr failure;  ///< the first of the work in between that was found when it was issued

  /// How long the device took from one to the other. The end is told as the moment of the call, which is close to it
  /// where somebody waited. Precondition: both have been reached. Throws CudaError.
  [[nodiscard]] ProfileTicks ticks() const;
};

}  // namespace cox::detail
