#pragma once

#include <coxswain/tools/cox/stress/options.hpp>

#include <cstddef>
#include <cstdint>

namespace cox::stress {

/// One operation of a client, ready to be done.
struct Plan {
  std::uint64_t number = 0;
  Operation operation = Operation::Submit;
  Fault fault = Fault::None;
  std::size_t device = 0;    ///< Index into Options::devices.
  std::size_t bytes = 0;     ///< Of a new buffer.
  std::uint64_t choice = 0;  ///< Seed of all other random choices of the operation.

  friend bool operator==(const Plan&, const Plan&) = default;
};

/// The operations of one client: a function of seed, client and number alone, so that a run can be repeated.
class Program {
 public:
  Program(const Options& options, std::uint32_t client) noexcept
      : options_(options), seed_(Random::derived(options.seed, client)) {}

  [[nodiscard]] Plan at(std::uint64_t number) const noexcept {
    Random random(Random::derived(seed_, number));
    Plan plan{.number = number};
    plan.operation = options_.mix.pick(random);
    plan.fault = options_.faults.pick(plan.operation, random);
    plan.device = static_cast<std::size_t>(random.below(options_.devices.size()));
    plan.bytes = options_.payload.pick(random);
    plan.choice = random.next();
    return plan;
  }

 private:
  const Options& options_;
  std::uint64_t seed_;
};

}  // namespace cox::stress
