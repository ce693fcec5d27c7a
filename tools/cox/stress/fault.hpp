#pragma once

#include <coxswain/tools/cox/stress/operation.hpp>
#include <coxswain/tools/cox/stress/random.hpp>

#include <cstdint>
#include <string_view>

namespace cox::stress {

/// What is made to go wrong with one operation.
enum class Fault : std::uint8_t {
  None,
  Throw,   ///< The task or kernel throws.
  Cancel,  ///< The stop_token is triggered before or while the task is queued.
  Expire,  ///< The deadline has passed.
};

/// How often, from 0 (never) to 1 (always). Operations that cannot have a fault are done without.
struct FaultRates {
  double throws = 0;
  double cancel = 0;
  double expire = 0;

  /// "throw=0.001,cancel=0.001,expire=0.001". Throws ArgumentError.
  [[nodiscard]] static FaultRates parse(std::string_view option, std::string_view text);

  [[nodiscard]] Fault pick(Operation operation, Random& random) const noexcept;
};

}  // namespace cox::stress
