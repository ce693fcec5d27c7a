#pragma once

#include <coxswain/runtime/profile/profile_duration.hpp>
#include <coxswain/servers/cuda/event/cuda_event.hpp>

#include <cstdint>
#include <exception>
#include <memory>

namespace cox::detail {

/// A profile, delimited by two events on the stream.
struct CudaProfile {
  std::shared_ptr<CudaEvent> begin;
  std::shared_ptr<CudaEvent> end;
  std::uint64_t begin_sequence = 0;
  std::exception_ptr failure;  ///< first failure of the profiled work that was found when it was issued

  /// Time that the device took from `begin` to `end`. The returned end is the time of this call, which is close to the
  /// real end if a caller waited for the profile. Precondition: both events have been reached. Throws CudaError.
  [[nodiscard]] ProfileTicks ticks() const;
};

}  // namespace cox::detail
