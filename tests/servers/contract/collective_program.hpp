#pragma once

// Random programs of collectives, transfers and kernels over several devices: what they are, and what they must
// compute. A program is a list of operations in order. On each device its calls may be made in another order where that
// changes nothing: next to each other, on different streams, of different communicators, with no buffer in common. So
// the devices see overlapping communicators in different orders, and the outcome is still that of the list.

#include <coxswain/runtime/communication/collective_operation.hpp>
#include <coxswain/runtime/communication/reduce_operation.hpp>

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace cox::test {

struct ProgramShape {
  std::size_t devices = 4;
  std::size_t communicators = 4;  ///< sets of devices
  std::size_t buffers = 4;        ///< of each device
  std::size_t streams = 3;        ///< of each device
  std::size_t operations = 30;
  double faults = 0.1;  ///< share of the operations
};

/// Elements of every buffer.
inline constexpr std::size_t buffer_elements = 60;

/// What goes wrong with an operation, so that it changes nothing. Each such operation is on streams of its own.
/// MissingRank: with one more device, which does not come.
enum class ProgramFault : std::uint8_t { None, Mismatch, StaleHandle, MissingRank };

/// One operation of all devices that take part in it.
struct ProgramStep {
  enum class Kind : std::uint8_t { Collective, Group, Kernel, Renew, Wait };
  struct Part {
    std::size_t device;
    std::size_t stream;
    std::size_t source;
    std::size_t destination;
  };

  Kind kind = Kind::Kernel;
  CollectiveOperation operation = CollectiveOperation::AllReduce;  ///< of Collective; Send: part 0 to part 1
  ReduceOperation reduce_operation = ReduceOperation::Sum;
  ProgramFault fault = ProgramFault::None;
  std::size_t count = 1;  ///< as CollectiveRequest says
  std::size_t root = 0;
  std::uint32_t number = 0;  ///< of Kernel and Renew
  bool to_client = false;    ///< of Send: as one call of the sender's
  std::vector<Part> parts;   ///< of each device that takes part, in the order of ranks
};
using StepKind = ProgramStep::Kind;

class CollectiveProgram {
 public:
  CollectiveProgram(std::uint64_t seed, const ProgramShape& shape);

  [[nodiscard]] const ProgramShape& shape() const noexcept { return shape_; }
  [[nodiscard]] const std::vector<ProgramStep>& steps() const noexcept { return steps_; }

  struct Call {
    std::size_t step;
    std::size_t part;
  };
  /// The calls of a device in the order in which they are made.
  [[nodiscard]] const std::vector<Call>& calls(std::size_t device) const { return calls_[device]; }

  using Buffer = std::vector<std::uint32_t>;
  /// What a buffer holds at first.
  [[nodiscard]] static Buffer initial(std::size_t device, std::size_t buffer);
  /// The contents of all buffers of all devices at the end.
  [[nodiscard]] std::vector<std::vector<Buffer>> outcome() const;

 private:
  using Random = std::mt19937_64;

  void choose_communicators(Random& random);
  [[nodiscard]] ProgramStep choose_step(Random& random) const;
  [[nodiscard]] ProgramStep choose_communication(Random& random) const;
  void choose_fault(ProgramStep& step, Random& random) const;
  void reorder(std::vector<Call>& calls, Random& random) const;
  [[nodiscard]] bool may_swap(const Call& first, const Call& second) const;

  ProgramShape shape_;
  std::vector<std::vector<std::size_t>> communicators_;  // devices of each
  std::vector<ProgramStep> steps_;
  std::vector<std::vector<Call>> calls_;  // by device
};

}  // namespace cox::test
