#pragma once

// Random programs of collectives, transfers and kernels over several devices: what they are, and what they must
// compute; which of their operations fail, and which memory is poisoned by that (L14). A program is a list of
// operations in order. On each device its calls may be made in another order where that changes nothing: next to each
// other, on different streams, of different communicators, with no buffer in common. So the devices see overlapping
// communicators in different orders, and the outcome is still that of the list.

#include <coxswain/runtime/communication/collective_operation.hpp>
#include <coxswain/runtime/communication/reduce_operation.hpp>
#include <coxswain/tests/servers/contract/program_failure.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <vector>

namespace cox::test {

struct ProgramShape {
  std::size_t devices = 4;
  std::size_t communicators = 4;  ///< sets of devices
  std::size_t buffers = 4;        ///< of each device
  std::size_t streams = 3;        ///< of each device
  std::size_t operations = 30;
  double faults = 0.1;    ///< share of the operations
  double failures = 0.1;  ///< share of the operations of one device that fail, and poison memory
};

/// Elements of every buffer.
inline constexpr std::size_t buffer_elements = 60;

/// What goes wrong with a collective, on memory of its own. Each such operation is on streams of its own.
/// MissingRank: with one more device, which does not come.
enum class ProgramFault : std::uint8_t { None, Mismatch, StaleHandle, MissingRank };

/// One operation of all devices that take part in it.
struct ProgramStep {
  enum class Kind : std::uint8_t {
    Collective,
    Group,
    // Of one device
    Kernel,     ///< changes a buffer
    Copy,       ///< a kernel: a buffer becomes another, whatever it was
    Overwrite,  ///< a kernel: a window becomes `number`, whatever it was
    Write,      ///< from the host: a window becomes `number`
    Renew,      ///< a buffer is replaced by another allocation
    Wait,
    Read,
    Accept,
    Fail,  ///< an operation that should have written a window fails
  };
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
  std::size_t count = 1;  ///< as CollectiveRequest says; of one device: elements of the window
  std::size_t first = 0;  ///< of one device: element at which the window begins
  std::size_t root = 0;
  std::uint32_t number = 0;
  bool overwrites = false;                                             ///< of Copy: declared so
  ProgramFailure::Kind failure = ProgramFailure::Kind::ArgumentCount;  ///< of Fail
  bool to_client = false;                                              ///< of Send: as one call of the sender's
  bool is_held_up = false;  ///< of Fail: its stream waits until all calls have been made
  std::vector<Part> parts;  ///< of each device that takes part, in the order of ranks
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
  struct Content {
    Buffer numbers;
    std::shared_ptr<ProgramCause> poison = nullptr;  ///< null: good
    bool is_known = true;  ///< false: made from what an operation on poisoned memory may have left, which was accepted
  };
  struct Outcome {
    std::vector<std::vector<Content>> buffers;                       ///< of each device, at the end
    std::vector<std::vector<std::vector<ProgramFailure>>> failures;  ///< of each device and stream, in its order
    std::map<std::size_t, Content> reads;                            ///< by step
  };
  /// What a fleet promises: see there.
  struct Promises {
    bool keeps_first_cause = true;
    bool keeps_contents = true;
  };
  [[nodiscard]] Outcome outcome(const Promises& promises) const;

 private:
  using Random = std::mt19937_64;

  void choose_communicators(Random& random);
  [[nodiscard]] ProgramStep choose_step(Random& random) const;
  void choose_local(ProgramStep& step, Random& random) const;
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
