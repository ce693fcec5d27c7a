#include <coxswain/tests/model/explorer.hpp>

#include <coxswain/tests/model/fiber.hpp>
#include <coxswain/tests/model/model_platform.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <utility>
#include <vector>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define COX_MODEL_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define COX_MODEL_SANITIZED 1
#endif
#endif

namespace cox::model {
namespace {

constexpr std::size_t max_threads = 16;
constexpr std::uint8_t allocated_pattern = 0xCD;
constexpr std::uint8_t freed_pattern = 0xDB;

/// Pseudo addresses of what is shared but is not memory.
constexpr std::uint64_t clock_word = 0;
constexpr std::uint64_t spurious_word = 0;

enum class Kind : std::uint8_t {
  Load,
  Store,
  BufferedStore,
  ReadModifyWrite,
  FullBarrier,
  HeavyBarrier,
  Now,
  Pause,
  Park,
  Resume,
  Wake,
  Free
};

/// The visible operation that a model thread is about to execute.
struct Operation {
  Kind kind = Kind::Resume;
  const void* address = nullptr;
};

struct BufferedStore {
  void* address;
  std::uint64_t value;
  std::uint8_t bytes;
};

enum class Status : std::uint8_t { Ready, Parked, Finished };

struct Block {
  std::byte* begin;
  std::size_t bytes;
  bool freed;
};

/// Thrown out of set-up or `finally`; inside a model thread a failure switches away for good instead.
struct FailureSignal {};

std::uint64_t read_memory(const void* address, std::size_t bytes) noexcept {
  std::uint64_t value = 0;
  std::memcpy(&value, address, bytes);
  return value;
}

std::string format_value(std::uint64_t value) {
  std::array<char, 24> text{};
  std::snprintf(text.data(), text.size(), value < 0x1'0000'0000ULL ? "%llu" : "0x%llx",
                static_cast<unsigned long long>(value));
  return text.data();
}

}  // namespace

/// Depth-first search by replay: an execution is the list of choices it took; the next one repeats all but the last
/// that has an alternative left. The scheduler has no thread of its own: whoever reaches a scheduling point chooses who
/// goes on.
class Engine {
 public:
  Engine(const ExplorerOptions& options, const std::function<void(Execution&)>& set_up)
      : options_(options), set_up_(set_up) {}
  ~Engine() { release_blocks(); }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  Result search();

  // Execution
  void add_thread(std::string name, std::function<void()> body);
  void set_finally(std::function<void()> check) { finally_ = std::move(check); }
  void add_name(const void* address, std::string_view text, std::size_t bytes);

  // ModelPlatform
  std::uint64_t load(const void* address, std::size_t bytes);
  void store(void* address, std::size_t bytes, std::uint64_t value, bool drains);
  std::uint64_t begin_read_modify_write(void* address, std::size_t bytes, const char* operation);
  void end_read_modify_write(void* address, std::size_t bytes, std::uint64_t value);
  std::uint64_t now();
  std::uint64_t now_early();
  void full_barrier();
  void heavy_barrier();
  void pause();
  void park(const void* address, std::uint32_t expected);
  void wake(const void* address, bool all);
  void* allocate_block(std::size_t bytes, std::size_t alignment);
  void free_block(void* block);

  unsigned choose(unsigned count);
  [[noreturn]] void fail(std::string message);
  int running_thread() const noexcept { return concurrent_ ? current_ : -1; }

 private:
  struct Thread {
    std::string name;
    std::function<void()> body;
    Status status = Status::Finished;
    Operation pending;
    std::vector<BufferedStore> buffer;
    std::uint64_t buffer_mask =
        0;  ///< one bit per address hash, so that most questions about the buffer need no search
    std::uint64_t own_changes = 0;   ///< how often this thread changed a value in memory
    std::uint64_t seen_changes = 0;  ///< how often the others had when it last paused
    bool released = false;           ///< its pause ends because nobody else can run
    std::uint64_t early_floor = 0;   ///< the clock when this thread last was in the kernel
  };
  /// A stack with its engine and index. Kept for the next execution.
  struct Runner {
    Runner(Engine& owner, std::size_t thread_index)
        : engine(owner), index(thread_index), fiber(&Engine::run_fiber, this) {}
    Engine& engine;
    std::size_t index;
    Fiber fiber;
  };
  struct Choice {
    std::uint8_t count;
    std::uint8_t taken;
  };
  struct Name {
    const std::byte* begin;
    std::size_t bytes;
    std::string text;
  };
  /// A transition is an operation of thread t (number t) or a flush of its store buffer (number t + max_threads).
  using Transition = unsigned;
  using Transitions = std::array<Transition, 2 * max_threads>;
  struct Footprint {
    const void* read = nullptr;
    std::vector<const void*> writes;
    bool buffers_store = false;
    bool drains_all = false;
    bool conflicts_with_all = false;
  };
  /// What an abandoned execution leaves behind: its stacks still refer to it.
  struct Remains {
    std::vector<std::unique_ptr<Runner>> runners;
    std::vector<Thread> threads;
    std::function<void()> finally;
    std::vector<Block> blocks;
  };

  static constexpr Transition nothing = ~0U;
  static constexpr int end_of_execution = -1;
  static bool is_flush(Transition transition) noexcept { return transition >= max_threads; }
  static unsigned thread_of(Transition transition) noexcept { return transition % max_threads; }
  static Transition flush_of(unsigned thread) noexcept { return thread + static_cast<unsigned>(max_threads); }

  void execute();
  void start_threads();
  void settle();
  bool advance();
  Failure explain();
  void abandon();
  void release_blocks();
  void check_blocks();
  static void run_fiber(void* argument);

  // Scheduling
  void point(Kind kind, const void* address);
  void hand_over();
  int pick();
  int pick_any_order();
  int pick_late_flush();
  std::size_t collect_threads(Transitions& options, bool with_flush);
  std::size_t collect_flushes(unsigned thread, Transitions& options) const;
  void switch_cost(unsigned next);
  bool current_holds() const;
  bool can_run(unsigned thread) const;
  bool pause_over(unsigned thread) const;
  bool release_paused();
  void no_thread_left();
  void count_step();

  // Memory
  void flush(unsigned thread);
  void flush_through(unsigned thread, const void* address);
  void drain(unsigned thread);
  void write(unsigned thread, void* address, std::size_t bytes, std::uint64_t value);
  void check_alive(const void* address);
  static std::uint64_t mask_of(const void* address) {
    return 1ULL << (reinterpret_cast<std::uintptr_t>(address) * 0x9E37'79B9'7F4A'7C15ULL >> 58);
  }
  static void update_mask(Thread& thread);
  static bool buffers(const Thread& thread, const void* address);
  bool overlaps(unsigned left, unsigned right) const;
  bool overlaps_any(unsigned thread) const;

  // Sleep sets
  void footprint(Transition transition, Footprint& print) const;
  static bool dependent(const Footprint& left, const Footprint& right);
  void fall_asleep(Transition chosen, std::uint32_t tried);

  // Trace
  void record(const std::string& who, const std::string& what);
  void record(std::string what);
  std::string name_of(const void* address);

  const ExplorerOptions options_;
  const std::function<void(Execution&)>& set_up_;
  Fiber main_;
  std::vector<std::unique_ptr<Runner>> runners_;

  // The search
  std::vector<Choice> choices_;
  std::size_t depth_ = 0;
  Result result_;

  // The execution
  std::vector<Thread> threads_;
  std::size_t thread_count_ = 0;
  std::function<void()> finally_;
  int current_ = -1;
  bool concurrent_ = false;
  bool starting_ = false;
  bool repetition_ = false;
  unsigned preemptions_ = 0;
  unsigned spurious_left_ = 0;
  std::uint64_t steps_ = 0;
  std::uint64_t clock_ = 0;
  int stamped_by_ = -1;
  std::uint64_t stamped_step_ = 0;
  std::uint64_t changes_ = 0;
  std::uint64_t idle_releases_ = 0;
  std::uint32_t sleeping_ = 0;
  int committed_ = -1;
  std::vector<Block> blocks_;
  bool any_freed_ = false;
  std::optional<std::string> failure_;
  Footprint scratch_chosen_;
  Footprint scratch_other_;

  bool tracing_ = false;
  std::string trace_;
  std::vector<Name> names_;
};

namespace {

thread_local constinit Engine* active_engine = nullptr;

class ActiveScope {
 public:
  explicit ActiveScope(Engine& engine) noexcept : previous_(std::exchange(active_engine, &engine)) {}
  ~ActiveScope() { active_engine = previous_; }
  ActiveScope(const ActiveScope&) = delete;
  ActiveScope& operator=(const ActiveScope&) = delete;

 private:
  Engine* previous_;
};

/// A model thread that touches memory it may not is a failure with a trace. Sanitizers have handlers of their own,
/// which say more.
class FaultHandlerScope {
 public:
#if defined(COX_MODEL_SANITIZED)
  FaultHandlerScope() = default;
#else
  FaultHandlerScope() {
    struct sigaction action{};
    action.sa_handler = [](int) {
      if (active_engine != nullptr && active_engine->running_thread() >= 0) active_engine->fail("segmentation fault");
      std::signal(SIGSEGV, SIG_DFL);
    };
    action.sa_flags = SA_NODEFER;
    sigaction(SIGSEGV, &action, &previous_);
  }
  ~FaultHandlerScope() { sigaction(SIGSEGV, &previous_, nullptr); }

 private:
  struct sigaction previous_{};

 public:
#endif
  FaultHandlerScope(const FaultHandlerScope&) = delete;
  FaultHandlerScope& operator=(const FaultHandlerScope&) = delete;
};

}  // namespace

// ---- the search ----

Result Engine::search() {
  const ActiveScope scope{*this};
  [[maybe_unused]] const FaultHandlerScope fault_handler;
  for (;;) {
    execute();
    result_.steps += steps_;
    if (failure_) {
      result_.failure = explain();
      return result_;
    }
    ++(repetition_ ? result_.pruned : result_.executions);
    if (!advance()) {
      result_.complete = true;
      return result_;
    }
    if (options_.max_executions != 0 && result_.executions + result_.pruned >= options_.max_executions) return result_;
  }
}

bool Engine::advance() {
  while (!choices_.empty() && choices_.back().taken + 1 == choices_.back().count) choices_.pop_back();
  if (choices_.empty()) return false;
  ++choices_.back().taken;
  return true;
}

Failure Engine::explain() {
  const std::string message = *failure_;
  tracing_ = true;
  execute();
  if (failure_ != message)
    throw std::logic_error("the program under test is not deterministic: the failure '" + message +
                           "' did not come again");
  return Failure{message, std::move(trace_)};
}

void Engine::execute() {
  thread_count_ = 0;
  finally_ = nullptr;
  current_ = -1;
  depth_ = 0;
  preemptions_ = 0;
  spurious_left_ = options_.spurious_wakeups;
  steps_ = clock_ = stamped_step_ = changes_ = idle_releases_ = 0;
  stamped_by_ = committed_ = -1;
  sleeping_ = 0;
  repetition_ = false;
  failure_.reset();
  names_.clear();
  trace_.clear();
  try {
    Execution execution{*this};
    set_up_(execution);
    start_threads();
    const int first = pick();
    if (first != end_of_execution) {
      current_ = first;
      Fiber::switch_to(main_, runners_[static_cast<std::size_t>(first)]->fiber);
    }
    concurrent_ = false;
    if (!failure_) settle();
  } catch (const FailureSignal&) {
  }
  concurrent_ = false;
  if (failure_) abandon();
}

void Engine::start_threads() {
  while (runners_.size() < thread_count_) runners_.push_back(std::make_unique<Runner>(*this, runners_.size()));
  concurrent_ = starting_ = true;
  for (std::size_t index = 0; index < thread_count_ && !failure_; ++index) {
    current_ = static_cast<int>(index);
    Fiber::switch_to(main_, runners_[index]->fiber);
  }
  starting_ = false;
  current_ = -1;
  if (failure_) throw FailureSignal{};
}

void Engine::settle() {
  for (std::size_t index = 0; index < thread_count_; ++index) {
    if (!runners_[index]->fiber.intact()) fail("the stack of thread " + threads_[index].name + " was overrun");
  }
  if (finally_) finally_();
  finally_ = nullptr;
  for (std::size_t index = 0; index < thread_count_; ++index) threads_[index].body = nullptr;
  if (failure_) throw FailureSignal{};
  check_blocks();
  release_blocks();
}

void Engine::abandon() {
  static auto& all_remains = *new std::vector<Remains>;
  all_remains.push_back({std::move(runners_), std::move(threads_), std::move(finally_), std::move(blocks_)});
  runners_.clear();
  threads_.clear();
  blocks_.clear();
  any_freed_ = false;
}

void Engine::run_fiber(void* argument) {
  auto& [engine, index, fiber] = *static_cast<Runner*>(argument);
  for (;;) {
    try {
      engine.threads_[index].body();
    } catch (const std::exception& error) {
      engine.fail("exception left thread " + engine.threads_[index].name + ": " + error.what());
    } catch (...) {
      engine.fail("exception left thread " + engine.threads_[index].name);
    }
    engine.threads_[index].status = Status::Finished;
    if (engine.tracing_) engine.record("ends");
    if (engine.starting_) {
      Fiber::switch_to(fiber, engine.main_);
    } else {
      engine.hand_over();
    }
  }
}

void Engine::add_thread(std::string name, std::function<void()> body) {
  if (thread_count_ == max_threads) throw std::invalid_argument("an execution has at most 16 threads");
  if (threads_.size() == thread_count_) threads_.emplace_back();
  Thread& thread = threads_[thread_count_++];
  thread.name = std::move(name);
  thread.body = std::move(body);
  thread.status = Status::Ready;
  thread.pending = {};
  thread.buffer.clear();
  thread.buffer_mask = 0;
  thread.own_changes = thread.seen_changes = 0;
  thread.early_floor = clock_;
  thread.released = false;
}

void Engine::fail(std::string message) {
  failure_ = std::move(message);
  if (!concurrent_ || current_ < 0) throw FailureSignal{};
  if (tracing_) record("FAILS: " + *failure_);
  Fiber::switch_to(runners_[static_cast<std::size_t>(current_)]->fiber, main_);
  std::abort();
}

unsigned Engine::choose(unsigned count) {
  if (count == 0 || count > 255) throw std::invalid_argument("a choice has 1 to 255 outcomes");
  if (count == 1 || repetition_) return 0;
  if (depth_ == choices_.size()) {
    choices_.resize(depth_ + 1);
    choices_.back() = {static_cast<std::uint8_t>(count), 0};
  }
  const Choice& choice = choices_[depth_++];
  if (choice.count != count)
    fail("the program under test is not deterministic: a choice has another number of outcomes than before");
  return choice.taken;
}

// ---- scheduling ----

void Engine::point(Kind kind, const void* address) {
  Thread& thread = threads_[static_cast<std::size_t>(current_)];
  thread.pending = {kind, address};
  if (starting_) {
    Fiber::switch_to(runners_[static_cast<std::size_t>(current_)]->fiber, main_);
  } else {
    hand_over();
  }
  if (any_freed_ && address != nullptr && kind != Kind::Free) check_alive(address);
}

void Engine::hand_over() {
  const int self = current_;
  const int next = pick();
  if (next == self) return;
  current_ = next;
  Fiber& to = next == end_of_execution ? main_ : runners_[static_cast<std::size_t>(next)]->fiber;
  Fiber::switch_to(runners_[static_cast<std::size_t>(self)]->fiber, to);
}

int Engine::pick() {
  const int next = options_.reduction == Reduction::LateFlush ? pick_late_flush() : pick_any_order();
  if (next == end_of_execution) return next;
  Thread& thread = threads_[static_cast<std::size_t>(next)];
  if (thread.status == Status::Parked) {
    --spurious_left_;
    thread.status = Status::Ready;
    thread.pending = {Kind::Resume, nullptr};
  }
  return next;
}

void Engine::count_step() {
  if (++steps_ > options_.max_steps)
    fail("livelock: an execution has more than " + std::to_string(options_.max_steps) + " steps");
}

/// Threads and flushes are equals: any enabled one may be next.
int Engine::pick_any_order() {
  for (;;) {
    count_step();
    Transitions options;
    std::size_t count = collect_threads(options, false);
    for (unsigned thread = 0; thread < thread_count_; ++thread) {
      if (!threads_[thread].buffer.empty()) options[count++] = flush_of(thread);
    }
    if (count == 0) {
      if (release_paused()) continue;
      no_thread_left();
      return end_of_execution;
    }
    std::uint32_t tried = 0;
    Transition chosen = nothing;
    if (options_.reduction == Reduction::SleepSets && !repetition_) {
      const auto* awake_end = std::remove_if(options.begin(), options.begin() + count,
                                             [&](Transition t) { return (sleeping_ >> t & 1U) != 0; });
      const auto awake = static_cast<std::size_t>(awake_end - options.begin());
      if (awake == 0) {
        repetition_ = true;  // every continuation was run before: finish quickly, try nothing
        --steps_;
        continue;
      }
      const unsigned index = choose(static_cast<unsigned>(awake));
      for (unsigned earlier = 0; earlier < index; ++earlier) tried |= 1U << options[earlier];
      chosen = options[index];
      fall_asleep(chosen, tried);
    } else {
      chosen = options[choose(static_cast<unsigned>(count))];
    }
    if (!is_flush(chosen)) {
      switch_cost(chosen);
      return static_cast<int>(chosen);
    }
    flush(thread_of(chosen));
  }
}

/// First the thread is chosen, then what is flushed right before its operation. A flush that happens earlier than that
/// can be delayed to this place: it commutes with everything in between.
int Engine::pick_late_flush() {
  Transitions options;
  for (;;) {
    count_step();
    std::size_t count = collect_threads(options, true);
    if (count == 0) {
      if (release_paused()) continue;
      no_thread_left();
      return end_of_execution;
    }
    const unsigned next = options[choose(static_cast<unsigned>(count))];
    if (!options_.store_buffers) {
      switch_cost(next);
      return static_cast<int>(next);
    }
    for (;;) {
      const bool ready = can_run(next);
      options[0] = next;
      count = (ready ? 1U : 0U);
      count += collect_flushes(next, options);
      if (count == 0) break;  // a paused thread for which nothing changed
      const Transition chosen = options[choose(static_cast<unsigned>(count))];
      if (!is_flush(chosen)) {
        switch_cost(next);
        return static_cast<int>(next);
      }
      count_step();
      const unsigned flushed = thread_of(chosen);
      const Operation& operation = threads_[next].pending;
      if (operation.address != nullptr && !overlaps_any(flushed) && buffers(threads_[flushed], operation.address)) {
        flush_through(flushed, operation.address);
      } else {
        flush(flushed);
      }
    }
  }
}

/// The current thread first, so that the first execution of a subtree has no preemption.
std::size_t Engine::collect_threads(Transitions& options, bool with_flush) {
  std::size_t count = 0;
  const bool holds = current_holds();
  if (holds) options[count++] = static_cast<Transition>(current_);
  if (holds && preemptions_ >= options_.preemption_bound) return count;
  const bool any_buffer =
      with_flush && std::any_of(threads_.begin(), threads_.begin() + static_cast<std::ptrdiff_t>(thread_count_),
                                [](const Thread& thread) { return !thread.buffer.empty(); });
  Transitions flushes;
  for (unsigned thread = 0; thread < thread_count_; ++thread) {
    if (holds && thread == static_cast<unsigned>(current_)) continue;
    const bool flush_may_end_pause =
        any_buffer && threads_[thread].status == Status::Ready && threads_[thread].pending.kind == Kind::Pause;
    if (can_run(thread) || (flush_may_end_pause && collect_flushes(thread, flushes) != 0)) options[count++] = thread;
  }
  return count;
}

bool Engine::current_holds() const {
  return current_ >= 0 && threads_[static_cast<std::size_t>(current_)].pending.kind != Kind::Pause &&
         can_run(static_cast<unsigned>(current_)) &&
         threads_[static_cast<std::size_t>(current_)].status == Status::Ready;
}

void Engine::switch_cost(unsigned next) {
  if (current_ >= 0 && static_cast<unsigned>(current_) != next && current_holds()) ++preemptions_;
}

bool Engine::can_run(unsigned index) const {
  const Thread& thread = threads_[index];
  switch (thread.status) {
    case Status::Finished: return false;
    case Status::Parked: return spurious_left_ > 0;
    case Status::Ready: return thread.pending.kind != Kind::Pause || pause_over(index);
  }
  return false;
}

bool Engine::pause_over(unsigned index) const {
  const Thread& thread = threads_[index];
  return options_.pause == Pause::Yield || thread.released || changes_ - thread.own_changes > thread.seen_changes;
}

/// A spin loop that waits for nobody must end by itself, so its threads go on when all others are stuck.
bool Engine::release_paused() {
  bool any = false;
  for (std::size_t index = 0; index < thread_count_; ++index) {
    Thread& thread = threads_[index];
    if (thread.status == Status::Ready && thread.pending.kind == Kind::Pause) any = thread.released = true;
  }
  if (any && ++idle_releases_ > 200) fail("livelock: threads spin and nobody changes anything");
  return any;
}

void Engine::no_thread_left() {
  const auto unfinished = [](const Thread& thread) { return thread.status != Status::Finished; };
  const auto end = threads_.begin() + static_cast<std::ptrdiff_t>(thread_count_);
  if (std::any_of(threads_.begin(), end, unfinished)) {
    std::string who;
    for (auto thread = std::find_if(threads_.begin(), end, unfinished); thread != end;
         thread = std::find_if(thread + 1, end, unfinished)) {
      who += (who.empty() ? "" : ", ") + thread->name;
    }
    fail("deadlock: parked for ever: " + who);
  }
  // Only late flushes leave stores behind. They commute unless two threads wrote the same address.
  for (;;) {
    Transitions options;
    std::size_t count = 0;
    for (unsigned thread = 0; thread < thread_count_; ++thread) {
      if (overlaps_any(thread)) options[count++] = thread;
    }
    if (count == 0) break;
    flush(options[choose(static_cast<unsigned>(count))]);
  }
  for (unsigned thread = 0; thread < thread_count_; ++thread) drain(thread);
}

/// The flushes that the pending operation of `thread` could tell, and those that could tell one of these.
std::size_t Engine::collect_flushes(unsigned thread, Transitions& options) const {
  const Operation& operation = threads_[thread].pending;
  std::uint32_t relevant = 0;
  const auto drains_own = [&] {
    return operation.kind == Kind::Store || operation.kind == Kind::ReadModifyWrite ||
           operation.kind == Kind::FullBarrier || operation.kind == Kind::Park || operation.kind == Kind::Wake;
  };
  for (unsigned other = 0; other < thread_count_; ++other) {
    const Thread& candidate = threads_[other];
    if (candidate.buffer.empty()) continue;
    bool tells = false;
    if (operation.kind == Kind::HeavyBarrier) {
      tells = overlaps_any(other);
    } else if (other != thread) {
      if (operation.kind == Kind::Pause) tells = !pause_over(thread);
      if (operation.address != nullptr && operation.kind != Kind::BufferedStore && operation.kind != Kind::Free) {
        tells = tells || buffers(candidate, operation.address);
      }
      if (drains_own()) tells = tells || overlaps(thread, other);
    }
    if (tells) relevant |= 1U << other;
  }
  if (relevant == 0) return 0;
  for (bool grew = true; grew;) {
    grew = false;
    for (unsigned other = 0; other < thread_count_; ++other) {
      if ((relevant >> other & 1U) != 0) continue;
      for (unsigned member = 0; member < thread_count_; ++member) {
        if ((relevant >> member & 1U) == 0 || !overlaps(member, other)) continue;
        relevant |= 1U << other;
        grew = true;
        break;
      }
    }
  }
  std::size_t count = 0;
  const bool ready = can_run(thread);
  for (unsigned other = 0; other < thread_count_; ++other) {
    if ((relevant >> other & 1U) != 0) options[count++ + (ready ? 1U : 0U)] = flush_of(other);
  }
  return count;
}

// ---- memory ----

void Engine::update_mask(Thread& thread) {
  thread.buffer_mask = 0;
  for (const BufferedStore& entry : thread.buffer) thread.buffer_mask |= mask_of(entry.address);
}

bool Engine::buffers(const Thread& thread, const void* address) {
  return (thread.buffer_mask & mask_of(address)) != 0 &&
         std::any_of(thread.buffer.begin(), thread.buffer.end(),
                     [&](const BufferedStore& entry) { return entry.address == address; });
}

bool Engine::overlaps(unsigned left, unsigned right) const {
  return left != right && (threads_[left].buffer_mask & threads_[right].buffer_mask) != 0 &&
         std::any_of(threads_[left].buffer.begin(), threads_[left].buffer.end(),
                     [&](const BufferedStore& entry) { return buffers(threads_[right], entry.address); });
}

bool Engine::overlaps_any(unsigned thread) const {
  for (unsigned other = 0; other < thread_count_; ++other) {
    if (overlaps(thread, other)) return true;
  }
  return false;
}

void Engine::write(unsigned thread, void* address, std::size_t bytes, std::uint64_t value) {
  if (read_memory(address, bytes) == value) return;
  std::memcpy(address, &value, bytes);
  ++changes_;
  ++threads_[thread].own_changes;
  idle_releases_ = 0;
}

void Engine::flush(unsigned thread) {
  auto& buffer = threads_[thread].buffer;
  const BufferedStore entry = buffer.front();
  buffer.erase(buffer.begin());
  update_mask(threads_[thread]);
  if (any_freed_) check_alive(entry.address);
  write(thread, entry.address, entry.bytes, entry.value);
  if (tracing_)
    record("  hardware",
           "flush of " + threads_[thread].name + ": " + name_of(entry.address) + " = " + format_value(entry.value));
}

void Engine::flush_through(unsigned thread, const void* address) {
  for (bool done = false; !done;) {
    done = threads_[thread].buffer.front().address == address;
    flush(thread);
  }
}

void Engine::drain(unsigned thread) {
  while (!threads_[thread].buffer.empty()) flush(thread);
}

void Engine::check_alive(const void* address) {
  const auto* place = static_cast<const std::byte*>(address);
  for (const Block& block : blocks_) {
    if (block.freed && place >= block.begin && place < block.begin + block.bytes) fail("use of a freed block");
  }
}

std::uint64_t Engine::load(const void* address, std::size_t bytes) {
  if (!concurrent_) return read_memory(address, bytes);
  point(Kind::Load, address);
  const Thread& thread = threads_[static_cast<std::size_t>(current_)];
  const auto& buffer = thread.buffer;
  const auto newest = (thread.buffer_mask & mask_of(address)) == 0
                          ? buffer.rend()
                          : std::find_if(buffer.rbegin(), buffer.rend(),
                                         [&](const BufferedStore& entry) { return entry.address == address; });
  const std::uint64_t value = newest == buffer.rend() ? read_memory(address, bytes) : newest->value;
  if (tracing_) record("load " + name_of(address) + " -> " + format_value(value));
  return value;
}

void Engine::store(void* address, std::size_t bytes, std::uint64_t value, bool drains) {
  if (!concurrent_) {
    std::memcpy(address, &value, bytes);
    return;
  }
  const bool buffered = options_.store_buffers && !drains;
  point(buffered ? Kind::BufferedStore : Kind::Store, address);
  const auto self = static_cast<unsigned>(current_);
  if (buffered) {
    threads_[self].buffer.push_back({address, value, static_cast<std::uint8_t>(bytes)});
    threads_[self].buffer_mask |= mask_of(address);
  } else {
    drain(self);
    write(self, address, bytes, value);
  }
  if (tracing_) record((buffered ? "store " : "store now ") + name_of(address) + " = " + format_value(value));
}

std::uint64_t Engine::begin_read_modify_write(void* address, std::size_t bytes, const char* operation) {
  if (!concurrent_) return read_memory(address, bytes);
  point(Kind::ReadModifyWrite, address);
  drain(static_cast<unsigned>(current_));
  const std::uint64_t old = read_memory(address, bytes);
  if (tracing_) record(std::string(operation) + " " + name_of(address) + " -> " + format_value(old));
  return old;
}

void Engine::end_read_modify_write(void* address, std::size_t bytes, std::uint64_t value) {
  if (!concurrent_) {
    std::memcpy(address, &value, bytes);
    return;
  }
  write(static_cast<unsigned>(current_), address, bytes, value);
  if (tracing_) record("  leaves " + name_of(address) + " = " + format_value(value));
}

std::uint64_t Engine::now() {
  if (!concurrent_) return ++clock_;
  point(Kind::Now, nullptr);
  const bool neighbour = stamped_by_ >= 0 && stamped_by_ != current_ && stamped_step_ + 1 == steps_;
  const bool tied = options_.tied_stamps && neighbour && choose(2) == 1;
  if (!tied) ++clock_;
  stamped_by_ = current_;
  stamped_step_ = steps_;
  if (tracing_) record("now -> " + format_value(clock_));
  return clock_;
}

std::uint64_t Engine::now_early() {
  const std::uint64_t newest = now();
  if (!concurrent_) return newest;
  const std::uint64_t oldest = threads_[static_cast<std::size_t>(current_)].early_floor + 1;
  const std::uint64_t stamp = newest <= oldest ? newest : newest - choose(static_cast<unsigned>(newest - oldest + 1));
  if (tracing_) record("  read early: " + format_value(stamp));
  return stamp;
}

void Engine::full_barrier() {
  if (!concurrent_) return;
  point(Kind::FullBarrier, nullptr);
  drain(static_cast<unsigned>(current_));
  if (tracing_) record("full barrier");
}

void Engine::heavy_barrier() {
  if (!concurrent_) return;
  point(Kind::HeavyBarrier, nullptr);
  for (unsigned thread = 0; thread < thread_count_; ++thread) drain(thread);
  threads_[static_cast<std::size_t>(current_)].early_floor = clock_;
  if (tracing_) record("heavy barrier");
}

void Engine::pause() {
  if (!concurrent_) return;
  point(Kind::Pause, nullptr);
  Thread& thread = threads_[static_cast<std::size_t>(current_)];
  thread.released = false;
  thread.seen_changes = changes_ - thread.own_changes;
  if (tracing_) record("pause is over");
}

void Engine::park(const void* address, std::uint32_t expected) {
  if (!concurrent_) throw std::logic_error("park outside of a model thread would block for ever");
  point(Kind::Park, address);
  drain(static_cast<unsigned>(current_));
  const auto value = static_cast<std::uint32_t>(read_memory(address, sizeof(std::uint32_t)));
  if (tracing_)
    record("park on " + name_of(address) + " while " + format_value(expected) + ": it is " + format_value(value) +
           (value == expected ? ", blocks" : ""));
  if (value != expected) return;
  Thread& thread = threads_[static_cast<std::size_t>(current_)];
  thread.status = Status::Parked;
  thread.pending = {Kind::Park, address};
  hand_over();
  threads_[static_cast<std::size_t>(current_)].early_floor = clock_;
  if (tracing_) record("runs again");
}

void Engine::wake(const void* address, bool all) {
  if (!concurrent_) return;
  point(Kind::Wake, address);
  drain(static_cast<unsigned>(current_));
  std::array<unsigned, max_threads> waiters{};
  unsigned count = 0;
  for (unsigned index = 0; index < thread_count_; ++index) {
    if (threads_[index].status == Status::Parked && threads_[index].pending.address == address)
      waiters[count++] = index;
  }
  std::string woken;
  const unsigned only = count == 0 || all ? 0 : choose(count);
  for (unsigned index = 0; index < count; ++index) {
    if (!all && index != only) continue;
    Thread& thread = threads_[waiters[index]];
    thread.status = Status::Ready;
    thread.pending = {Kind::Resume, nullptr};
    if (tracing_) woken += " " + thread.name;
  }
  if (tracing_) record("wake " + name_of(address) + ":" + (woken.empty() ? " nobody" : woken));
}

// ---- blocks ----

void* Engine::allocate_block(std::size_t bytes, std::size_t alignment) {
  const std::size_t rounded = (std::max<std::size_t>(bytes, 1) + alignment - 1) / alignment * alignment;
  void* place = std::aligned_alloc(std::max(alignment, sizeof(void*)), std::max(rounded, sizeof(void*)));
  if (place == nullptr) throw std::bad_alloc();
  std::memset(place, allocated_pattern, bytes);
  blocks_.push_back({static_cast<std::byte*>(place), bytes, false});
  if (tracing_) {
    add_name(place, "block" + std::to_string(blocks_.size()), bytes);
    if (concurrent_) record("allocates " + name_of(place));
  }
  return place;
}

void Engine::free_block(void* place) {
  if (concurrent_) point(Kind::Free, place);
  const auto block =
      std::find_if(blocks_.begin(), blocks_.end(), [&](const Block& candidate) { return candidate.begin == place; });
  if (tracing_ && concurrent_) record("frees " + name_of(place));
  if (block == blocks_.end() || block->freed) {
    const char* message = block == blocks_.end() ? "free of something that is not a block" : "second free of a block";
    if (concurrent_) fail(message);
    if (!failure_) failure_ = message;  // may be inside a destructor
    return;
  }
  // What the thread itself stored there before can no longer be read by anybody who is allowed to.
  if (concurrent_) {
    std::erase_if(threads_[static_cast<std::size_t>(current_)].buffer, [&](const BufferedStore& entry) {
      const auto* address = static_cast<const std::byte*>(entry.address);
      return address >= block->begin && address < block->begin + block->bytes;
    });
    update_mask(threads_[static_cast<std::size_t>(current_)]);
  }
  block->freed = any_freed_ = true;
  std::memset(block->begin, freed_pattern, block->bytes);
}

void Engine::check_blocks() {
  for (const Block& block : blocks_) {
    if (!block.freed && options_.check_leaks)
      fail("a block of " + std::to_string(block.bytes) + " bytes was never freed");
    if (block.freed && std::any_of(block.begin, block.begin + block.bytes,
                                   [](std::byte b) { return b != std::byte{freed_pattern}; })) {
      fail("a freed block was written to");
    }
  }
}

void Engine::release_blocks() {
  for (const Block& block : blocks_) std::free(block.begin);
  blocks_.clear();
  any_freed_ = false;
}

// ---- sleep sets ----

void Engine::footprint(Transition transition, Footprint& print) const {
  const unsigned index = thread_of(transition);
  const Thread& thread = threads_[index];
  print.read = nullptr;
  print.writes.clear();
  print.buffers_store = print.drains_all = print.conflicts_with_all = false;
  if (is_flush(transition)) {
    print.writes.push_back(thread.buffer.front().address);
    return;
  }
  const auto writes_buffered = [&](const Thread& owner) {
    for (const BufferedStore& entry : owner.buffer) print.writes.push_back(entry.address);
  };
  const Operation& operation = thread.pending;
  if (thread.status == Status::Parked) {
    print.writes.push_back(operation.address);
    print.writes.push_back(&spurious_word);
    return;
  }
  switch (operation.kind) {
    case Kind::Load:
      if (!buffers(thread, operation.address)) print.read = operation.address;
      break;
    case Kind::BufferedStore: print.buffers_store = true; break;
    case Kind::Store:
    case Kind::ReadModifyWrite:
    case Kind::Park:
    case Kind::Wake:
      print.writes.push_back(operation.address);
      writes_buffered(thread);
      break;
    case Kind::FullBarrier: writes_buffered(thread); break;
    case Kind::HeavyBarrier:
      print.drains_all = true;
      for (std::size_t other = 0; other < thread_count_; ++other) writes_buffered(threads_[other]);
      break;
    case Kind::Now: print.writes.push_back(&clock_word); break;
    case Kind::Pause:
    case Kind::Free: print.conflicts_with_all = true; break;
    case Kind::Resume: break;
  }
}

bool Engine::dependent(const Footprint& left, const Footprint& right) {
  const auto writes = [](const Footprint& print, const void* address) {
    return std::find(print.writes.begin(), print.writes.end(), address) != print.writes.end();
  };
  if (left.conflicts_with_all || right.conflicts_with_all) return true;
  if (left.drains_all && (right.buffers_store || right.drains_all)) return true;
  if (right.drains_all && left.buffers_store) return true;
  if (left.read != nullptr && writes(right, left.read)) return true;
  if (right.read != nullptr && writes(left, right.read)) return true;
  return std::any_of(left.writes.begin(), left.writes.end(),
                     [&](const void* address) { return writes(right, address); });
}

/// After `chosen`, those stay asleep that were asleep or tried before it here and that `chosen` does not depend on.
void Engine::fall_asleep(Transition chosen, std::uint32_t tried) {
  std::uint32_t candidates = sleeping_ | tried;
  sleeping_ = 0;
  if (candidates == 0) return;
  footprint(chosen, scratch_chosen_);
  for (; candidates != 0; candidates &= candidates - 1) {
    const auto other = static_cast<Transition>(std::countr_zero(candidates));
    footprint(other, scratch_other_);
    if (!dependent(scratch_chosen_, scratch_other_)) sleeping_ |= 1U << other;
  }
}

// ---- trace ----

void Engine::record(const std::string& who, const std::string& what) {
  std::array<char, 16> number{};
  std::snprintf(number.data(), number.size(), "%4llu  ", static_cast<unsigned long long>(steps_));
  trace_ += number.data();
  trace_ += who;
  trace_.append(who.size() < 14 ? 14 - who.size() : 1, ' ');
  trace_ += what + '\n';
}

void Engine::record(std::string what) { record(threads_[static_cast<std::size_t>(current_)].name, what); }

void Engine::add_name(const void* address, std::string_view text, std::size_t bytes) {
  if (tracing_) names_.push_back({static_cast<const std::byte*>(address), bytes, std::string(text)});
}

std::string Engine::name_of(const void* address) {
  const auto* place = static_cast<const std::byte*>(address);
  // The last name wins: a word inside a block may have its own.
  for (auto name = names_.rbegin(); name != names_.rend(); ++name) {
    if (place < name->begin || place >= name->begin + name->bytes) continue;
    return place == name->begin ? name->text : name->text + "+" + std::to_string(place - name->begin);
  }
  names_.push_back({place, 1, "word" + std::to_string(names_.size() + 1)});
  return names_.back().text;
}

// ---- the public face ----

std::string Result::to_string() const {
  std::string text = std::to_string(executions) + " executions, " + std::to_string(pruned) + " repetitions, " +
                     std::to_string(steps) + " steps, " + (complete ? "complete" : "not complete");
  if (failure) text += "\n" + failure->message + "\n" + failure->trace;
  return text;
}

void Execution::thread(std::string name, std::function<void()> body) {
  engine_.add_thread(std::move(name), std::move(body));
}
void Execution::finally(std::function<void()> check) { engine_.set_finally(std::move(check)); }
void Execution::name(const void* address, std::string_view text, std::size_t bytes) {
  engine_.add_name(address, text, bytes);
}

Result Explorer::run(const std::function<void(Execution&)>& set_up) const {
  if (options_.reduction == Reduction::SleepSets &&
      (options_.preemption_bound != ExplorerOptions::unlimited || options_.tied_stamps)) {
    throw std::invalid_argument("sleep sets need an unlimited preemption bound and no tied stamps");
  }
  Engine engine{options_, set_up};
  return engine.search();
}

void model_assert(bool holds, const char* message) {
  if (holds) return;
  if (active_engine == nullptr) throw std::logic_error(message);
  active_engine->fail(message);
}

unsigned model_choose(unsigned count) {
  if (active_engine == nullptr) throw std::logic_error("model_choose outside of an execution");
  return active_engine->choose(count);
}

int model_thread() noexcept { return active_engine == nullptr ? -1 : active_engine->running_thread(); }

namespace detail {
namespace {

std::uint64_t clock_outside = 0;

}  // namespace

std::uint64_t load(const void* address, std::size_t bytes) noexcept {
  return active_engine == nullptr ? read_memory(address, bytes) : active_engine->load(address, bytes);
}

void store(void* address, std::size_t bytes, std::uint64_t value, bool drains) noexcept {
  if (active_engine == nullptr) {
    std::memcpy(address, &value, bytes);
  } else {
    active_engine->store(address, bytes, value, drains);
  }
}

std::uint64_t begin_read_modify_write(void* address, std::size_t bytes, const char* operation) noexcept {
  return active_engine == nullptr ? read_memory(address, bytes)
                                  : active_engine->begin_read_modify_write(address, bytes, operation);
}

void end_read_modify_write(void* address, std::size_t bytes, std::uint64_t value) noexcept {
  if (active_engine == nullptr) {
    std::memcpy(address, &value, bytes);
  } else {
    active_engine->end_read_modify_write(address, bytes, value);
  }
}

void park(const void* address, std::uint32_t expected) {
  if (active_engine != nullptr) active_engine->park(address, expected);
}

void wake(const void* address, bool all) noexcept {
  if (active_engine != nullptr) active_engine->wake(address, all);
}

}  // namespace detail

std::uint64_t ModelPlatform::now() noexcept {
  return active_engine == nullptr ? ++detail::clock_outside : active_engine->now();
}
std::uint64_t ModelPlatform::now_early() noexcept {
  return active_engine == nullptr ? ++detail::clock_outside : active_engine->now_early();
}
std::uint64_t ModelPlatform::now_fenced() noexcept { return now(); }

void ModelPlatform::heavy_barrier() noexcept {
  if (active_engine != nullptr) active_engine->heavy_barrier();
}

void ModelPlatform::full_barrier() noexcept {
  if (active_engine != nullptr) active_engine->full_barrier();
}

void ModelPlatform::pause() noexcept {
  if (active_engine != nullptr) active_engine->pause();
}

void* ModelPlatform::allocate_block(std::size_t bytes, std::size_t alignment) {
  if (active_engine == nullptr) throw std::logic_error("allocate_block outside of an execution");
  return active_engine->allocate_block(bytes, alignment);
}

void ModelPlatform::free_block(void* block) noexcept {
  if (active_engine != nullptr) active_engine->free_block(block);
}

}  // namespace cox::model
