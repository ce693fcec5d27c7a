#pragma once

#include <coxswain/tools/cox/stress/operation.hpp>
#include <coxswain/tools/cox/stress/random.hpp>

#include <array>
#include <cstdint>
#include <string_view>

namespace cox::stress {

/// How often each operation is done, relative to the others.
class Mix {
 public:
  using Weights = std::array<std::uint32_t, operation_count>;
  static constexpr std::uint32_t largest_weight = 1'000'000;

  Mix() noexcept : Mix(Weights{40, 10, 2, 10, 10, 20, 5, 3, 2, 3, 5, 1, 1, 1, 1}) {}
  /// At least one weight is not 0.
  explicit Mix(const Weights& weights) noexcept;

  /// "submit=40,read=10"; operations that are not named get the weight 0. Throws ArgumentError.
  [[nodiscard]] static Mix parse(std::string_view option, std::string_view text);

  [[nodiscard]] std::uint32_t weight(Operation operation) const noexcept {
    return weights_[static_cast<std::size_t>(operation)];
  }
  /// Whether the mix contains operations that need several devices.
  [[nodiscard]] bool has_collectives() const noexcept;
  /// This mix without the operations that need several devices. At least one other weight must not be 0.
  [[nodiscard]] Mix without_collectives() const noexcept;
  [[nodiscard]] Mix only_collectives() const noexcept;
  [[nodiscard]] Operation pick(Random& random) const noexcept;

 private:
  Weights weights_;
  std::uint64_t total_;
};

}  // namespace cox::stress
