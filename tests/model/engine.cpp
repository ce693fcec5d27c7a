// The search, and one execution from its start to its end.
#include <coxswain/tests/model/engine.hpp>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <utility>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define COX_MODEL_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define COX_MODEL_SANITIZED 1
#endif
#endif

namespace cox::model {
namespace {

/// Thrown out of set-up or `finally`; inside a model thread a failure switches away for good instead.
struct FailureSignal {};

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

}  // namespace cox::model
