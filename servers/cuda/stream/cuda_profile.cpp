#include <coxswain/servers/cuda/stream/cuda_profile.hpp>

#include <coxswain/servers/cuda/driver/cuda_try.hpp>

#include <chrono>

namespace cox::detail {

ProfileTicks CudaProfile::ticks() const {
  float milliseconds = 0;
  COX_CUDA_TRY(event_elapsed_time(&milliseconds, begin->native(), end->native()));
  const auto now = std::chrono::steady_clock::now();
  const std::chrono::duration<double, std::milli> taken(milliseconds);
  return {now - std::chrono::duration_cast<std::chrono::nanoseconds>(taken), now};
}

}  // namespace cox::detail
