#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace cox::model {

/// What the search may leave out.
enum class Reduction : std::uint8_t {
  /// Nothing: every order of every visible operation and of every flush of a store buffer.
  None,
  /// A flush happens only right before an operation that can tell. Loses no outcome, whatever the preemption bound.
  LateFlush,
  /// Sleep sets: of several orders that differ only in neighbouring independent operations (different addresses, or
  /// both reads),
  /// one is run to its end. Loses no outcome of the atomics, but the order of plain memory accesses between threads is
  /// not tracked.
  /// Needs an unlimited preemption bound.
  SleepSets,
};

/// What a spin hint means.
enum class Pause : std::uint8_t {
  /// The thread waits until another thread changed memory since its previous pause, or until nobody else can run. For
  /// unbounded spin loops.
  UntilChange,
  /// The thread offers the processor and may go on at once. For spin loops that end by themselves.
  Yield,
};

struct ExplorerOptions {
  static constexpr unsigned unlimited = std::numeric_limits<unsigned>::max();

  /// How often a thread that could go on may be interrupted by another one in one execution.
  unsigned preemption_bound = unlimited;
  /// x86-TSO: a store waits in a FIFO of its thread. False: sequential consistency.
  bool store_buffers = true;
  Reduction reduction = Reduction::LateFlush;
  Pause pause = Pause::UntilChange;
  /// How many times in one execution a parked thread may wake up without a reason.
  unsigned spurious_wakeups = 0;
  /// now() may return the stamp that another thread got immediately before. Not with sleep sets.
  bool tied_stamps = false;
  /// Blocks still allocated when the state has been destroyed are a failure.
  bool check_leaks = true;
  /// 0: no limit.
  std::uint64_t max_executions = 0;
  /// An execution with more steps than this is reported as a livelock.
  std::uint64_t max_steps = 20'000;
};

/// The first violation that a search met.
struct Failure {
  std::string message;
  /// One line per step: number, thread, operation, address name, value.
  std::string trace;
};

struct Result {
  /// Executions that ran to their end.
  std::uint64_t executions = 0;
  /// Executions that sleep sets found to be repetitions.
  std::uint64_t pruned = 0;
  /// Visible operations and flushes over all executions.
  std::uint64_t steps = 0;
  /// The search saw everything within its bounds and found no failure.
  bool complete = false;
  std::optional<Failure> failure;

  /// One paragraph for a test's message.
  std::string to_string() const;
};

class Engine;

/// One run of the program under test, from its initial state. Valid while the set-up function runs.
class Execution {
 public:
  /// Adds a model thread. At most 16. `body` is destroyed after `finally` ran.
  void thread(std::string name, std::function<void()> body);
  /// Runs once all threads have ended and all stores are visible.
  void finally(std::function<void()> check);
  /// Names the address of an atomic, or of a piece of memory that holds several, in traces.
  void name(const void* address, std::string_view text, std::size_t bytes = 1);

 private:
  friend class Engine;
  explicit Execution(Engine& engine) noexcept : engine_(engine) {}
  Engine& engine_;
};

/// Runs a small concurrent program in every order that its bounds allow, on the calling thread, and reports the first
/// order that fails. A failure is: model_assert of something false, an exception that leaves a thread, a deadlock (all
/// unfinished threads are parked), a livelock, a segmentation fault, a store or load in a freed block, a second free, a
/// leaked block. The program must be deterministic: it may depend on nothing but its ModelPlatform and model_choose.
/// After a failure the stacks and the state of the failed execution are kept until the process ends, and none of it is
/// destroyed.
class Explorer {
 public:
  explicit Explorer(ExplorerOptions options) : options_(options) {}

  /// Calls `set_up` once per execution. Throws std::invalid_argument for options that exclude each other,
  /// std::logic_error when the program turns out not to be deterministic.
  Result run(const std::function<void(Execution&)>& set_up) const;

 private:
  ExplorerOptions options_;
};

/// Fails the execution unless `holds`. Does not return then. Outside of an execution it throws std::logic_error.
void model_assert(bool holds, const char* message);

/// 0 .. count - 1, each explored in turn. `count` is 1 to 255.
unsigned model_choose(unsigned count);

/// Index of the running model thread in the order of Execution::thread; -1 during set-up and `finally`.
int model_thread() noexcept;

}  // namespace cox::model
