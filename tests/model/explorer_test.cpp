#include <coxswain/tests/model/explorer.hpp>
#include <coxswain/tests/model/model_platform.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <array>
#include <memory>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

using namespace cox::model;

namespace {

template <class T>
using atomic = ModelPlatform::atomic<T>;

constexpr auto relaxed = std::memory_order_relaxed;
constexpr auto acquire = std::memory_order_acquire;
constexpr auto release = std::memory_order_release;

struct Words {
  std::array<atomic<int>, 4> word{};
  std::array<int, 4> seen{};
};

std::uint64_t binomial(unsigned n, unsigned k) {
  std::uint64_t value = 1;
  for (unsigned i = 1; i <= k; ++i) value = value * (n - k + i) / i;
  return value;
}

/// Two threads of independent read-modify-writes.
auto two_counters(unsigned left, unsigned right) {
  return [=](Execution& execution) {
    auto words = std::make_shared<Words>();
    execution.thread("left", [=] {
      for (unsigned i = 0; i < left; ++i) words->word[0].fetch_add(1);
    });
    execution.thread("right", [=] {
      for (unsigned i = 0; i < right; ++i) words->word[1].fetch_add(1);
    });
    execution.finally([=] {
      model_assert(words->word[0].load() == static_cast<int>(left), "left lost a count");
      model_assert(words->word[1].load() == static_cast<int>(right), "right lost a count");
    });
  };
}

enum class Barrier { None, Light, Full, Heavy };

template <Barrier barrier>
void pass() {
  if constexpr (barrier == Barrier::Light) ModelPlatform::light_barrier();
  if constexpr (barrier == Barrier::Full) ModelPlatform::full_barrier();
  if constexpr (barrier == Barrier::Heavy) ModelPlatform::heavy_barrier();
}

/// The store-buffering litmus test: may both threads miss the other's store?
template <Barrier left, Barrier right>
void store_buffering(Execution& execution) {
  auto words = std::make_shared<Words>();
  execution.name(&words->word[0], "x");
  execution.name(&words->word[1], "y");
  execution.thread("left", [=] {
    words->word[0].store(1, release);
    pass<left>();
    words->seen[0] = words->word[1].load(acquire);
  });
  execution.thread("right", [=] {
    words->word[1].store(1, release);
    pass<right>();
    words->seen[1] = words->word[0].load(acquire);
  });
  execution.finally([=] { model_assert(words->seen[0] + words->seen[1] > 0, "both missed the other's store"); });
}

/// A toy eventcount: the consumer announces that it parks, looks again, parks; the producer publishes, then looks for a
/// parked consumer.
struct EventCount {
  atomic<int> published{0};
  atomic<std::uint32_t> parked{0};
};

enum class Defect { None, NoFence, NoSecondLook };

template <Defect defect>
void event_count(Execution& execution) {
  auto events = std::make_shared<EventCount>();
  execution.name(&events->published, "published");
  execution.name(&events->parked, "parked");
  execution.thread("producer", [=] {
    events->published.store(1, release);
    ModelPlatform::light_barrier();
    if (events->parked.load(relaxed) == 1) {
      events->parked.store(0);
      ModelPlatform::wake(events->parked);
    }
  });
  execution.thread("consumer", [=] {
    while (events->published.load(acquire) == 0) {
      events->parked.store(1, relaxed);
      if (defect != Defect::NoFence) ModelPlatform::heavy_barrier();
      if (defect != Defect::NoSecondLook && events->published.load(acquire) != 0) break;
      ModelPlatform::park(events->parked, 1);
    }
  });
}

/// A Treiber stack over indices. Without a version in its head it suffers from ABA.
template <bool versioned>
void treiber_stack(Execution& execution) {
  struct Head {
    std::uint32_t index;
    std::uint32_t version;
  };
  struct Stack {
    atomic<Head> head{Head{1, 0}};
    std::array<atomic<std::uint32_t>, 3> next{};
    std::array<int, 3> owners{};

    std::uint32_t pop() {
      Head head_now = head.load(acquire);
      while (head_now.index != 0) {
        const std::uint32_t after = next[head_now.index].load(relaxed);
        if (head.compare_exchange_strong(head_now, Head{after, head_now.version + (versioned ? 1 : 0)})) break;
      }
      if (head_now.index != 0) model_assert(++owners[head_now.index] == 1, "one element popped twice");
      return head_now.index;
    }
    void push(std::uint32_t index) {
      --owners[index];
      Head head_now = head.load(acquire);
      do {
        next[index].store(head_now.index, relaxed);
      } while (!head.compare_exchange_strong(head_now, Head{index, head_now.version}));
    }
  };
  auto stack = std::make_shared<Stack>();
  stack->next[1].store(2);  // the stack holds 1, 2
  execution.name(&stack->head, "head");
  execution.thread("popper", [=] { stack->pop(); });
  execution.thread("recycler", [=] {
    const std::uint32_t first = stack->pop();
    stack->pop();
    if (first != 0) stack->push(first);
    stack->pop();
  });
}

/// A program of random operations on three words; what it can observe is the set of all loaded and final values.
using Outcomes = std::set<std::vector<int>>;

struct RandomOperation {
  int kind;
  std::size_t word;
  int value;
};
using RandomProgram = std::vector<std::vector<RandomOperation>>;

RandomProgram random_program(unsigned seed) {
  std::mt19937 random{seed};
  const auto below = [&](unsigned limit) { return static_cast<unsigned>(random()) % limit; };
  RandomProgram program(2 + below(2));
  int value = 1;
  for (auto& thread : program) {
    thread.resize(program.size() == 2 ? 2 + below(3) : 1 + below(2));
    for (auto& operation : thread) operation = {static_cast<int>(below(18)), below(3), value++};
  }
  return program;
}

Outcomes outcomes_of(const RandomProgram& program, ExplorerOptions options, Result* result = nullptr) {
  Outcomes outcomes;
  const Result got = Explorer{options}.run([&](Execution& execution) {
    struct State {
      std::array<atomic<int>, 3> word{};
      atomic<std::uint32_t> bell{0};
      std::vector<std::vector<int>> seen;
    };
    auto state = std::make_shared<State>();
    state->seen.resize(program.size());
    for (std::size_t index = 0; index < program.size(); ++index) {
      execution.thread("t" + std::to_string(index), [state, index, &program] {
        auto& seen = state->seen[index];
        for (const auto& [kind, word, value] : program[index]) {
          auto& target = state->word[word];
          if (kind < 5) target.store(value, relaxed);
          if (kind >= 5 && kind < 10) seen.push_back(target.load(acquire));
          if (kind == 10) seen.push_back(target.exchange(value));
          if (kind == 11) target.store(value);
          if (kind == 12) ModelPlatform::full_barrier();
          if (kind >= 13 && kind < 16) ModelPlatform::heavy_barrier();
          if (kind == 16) seen.push_back(static_cast<int>(ModelPlatform::now()));
          if (kind == 17) {
            state->bell.store(1, relaxed);
            ModelPlatform::wake_all(state->bell);
            ModelPlatform::park(state->bell, 0);
          }
        }
      });
    }
    execution.finally([state, &outcomes] {
      std::vector<int> outcome;
      for (const auto& seen : state->seen) {
        outcome.insert(outcome.end(), seen.begin(), seen.end());
        outcome.push_back(-1);
      }
      for (const auto& word : state->word) outcome.push_back(word.load());
      outcomes.insert(outcome);
    });
  });
  INFO(got.to_string());
  REQUIRE_FALSE(got.failure.has_value());
  REQUIRE(got.complete);
  if (result != nullptr) *result = got;
  return outcomes;
}

}  // namespace

TEST_CASE("explorer runs two threads of n and m operations in all (n + m choose n) orders") {
  const auto [left, right] = GENERATE(std::pair{1U, 1U}, std::pair{2U, 3U}, std::pair{4U, 4U}, std::pair{6U, 5U});
  const auto reduction = GENERATE(Reduction::None, Reduction::LateFlush);
  const Result result = Explorer{{.reduction = reduction}}.run(two_counters(left, right));
  INFO(result.to_string());
  CHECK(result.complete);
  CHECK(result.executions == binomial(left + right, left));
}

TEST_CASE("explorer with sleep sets runs independent operations in one order") {
  const Result result = Explorer{{.reduction = Reduction::SleepSets}}.run(two_counters(5, 4));
  INFO(result.to_string());
  CHECK(result.complete);
  CHECK(result.executions == 1);
}

TEST_CASE("explorer counts the orders within a preemption bound") {
  // Two threads of n and m operations: without preemption one runs after the other. One preemption of the thread that
  // goes first, after any of its operations but the last, adds n - 1 or m - 1 orders: the other one then runs to its
  // end.
  const unsigned left = 4;
  const unsigned right = 3;
  const auto count = [&](unsigned bound) {
    return Explorer{{.preemption_bound = bound}}.run(two_counters(left, right)).executions;
  };
  CHECK(count(0) == 2);
  CHECK(count(1) == 2 + (left - 1) + (right - 1));
  CHECK(count(ExplorerOptions::unlimited) == binomial(left + right, left));
}

TEST_CASE("explorer says that a search cut short is not complete") {
  const Result result = Explorer{{.max_executions = 10}}.run(two_counters(5, 5));
  CHECK(result.executions == 10);
  CHECK_FALSE(result.complete);
}

TEST_CASE("explorer finds store buffering under TSO and not under sequential consistency") {
  const auto reduction = GENERATE(Reduction::None, Reduction::LateFlush, Reduction::SleepSets);
  const Result tso = Explorer{{.reduction = reduction}}.run(store_buffering<Barrier::None, Barrier::None>);
  INFO(tso.to_string());
  REQUIRE(tso.failure.has_value());
  CHECK(tso.failure->message == "both missed the other's store");
  CHECK(tso.failure->trace.find("load y -> 0") != std::string::npos);

  const Result sc =
      Explorer{{.store_buffers = false, .reduction = reduction}}.run(store_buffering<Barrier::None, Barrier::None>);
  CHECK(sc.complete);
}

TEST_CASE("explorer lets a store-load fence work only if both sides have one or one side has the heavy one") {
  const auto reduction = GENERATE(Reduction::None, Reduction::LateFlush, Reduction::SleepSets);
  const Explorer explorer{{.reduction = reduction}};
  CHECK(explorer.run(store_buffering<Barrier::Full, Barrier::Full>).complete);
  CHECK(explorer.run(store_buffering<Barrier::Light, Barrier::Heavy>).complete);
  CHECK(explorer.run(store_buffering<Barrier::Heavy, Barrier::Light>).complete);
  CHECK(explorer.run(store_buffering<Barrier::Light, Barrier::Full>).failure.has_value());
  CHECK(explorer.run(store_buffering<Barrier::Light, Barrier::Light>).failure.has_value());
}

TEST_CASE("explorer never breaks message passing under TSO") {
  const auto reduction = GENERATE(Reduction::None, Reduction::LateFlush, Reduction::SleepSets);
  const Result result = Explorer{{.reduction = reduction}}.run([](Execution& execution) {
    auto words = std::make_shared<Words>();
    execution.thread("sender", [=] {
      words->word[0].store(7, relaxed);
      words->word[1].store(1, release);
    });
    execution.thread("receiver", [=] {
      if (words->word[1].load(acquire) == 1)
        model_assert(words->word[0].load(relaxed) == 7, "the flag overtook the message");
    });
  });
  INFO(result.to_string());
  CHECK(result.complete);
}

TEST_CASE("explorer lets a thread see its own buffered store before others do") {
  std::set<std::pair<int, int>> outcomes;
  const Result result = Explorer{{}}.run([&](Execution& execution) {
    auto words = std::make_shared<Words>();
    execution.thread("writer", [=] {
      words->word[0].store(1, relaxed);
      words->seen[0] = words->word[0].load(relaxed);
      words->seen[1] = words->word[1].load(relaxed);
    });
    execution.thread("reader", [=] {
      words->word[1].exchange(1);
      words->seen[2] = words->word[0].load(relaxed);
    });
    execution.finally([=, &outcomes] {
      model_assert(words->seen[0] == 1, "a thread missed its own store");
      outcomes.emplace(words->seen[1], words->seen[2]);
    });
  });
  CHECK(result.complete);
  CHECK(outcomes == std::set<std::pair<int, int>>{{0, 0}, {0, 1}, {1, 0}, {1, 1}});
}

TEST_CASE("explorer finds the same outcomes with and without reductions") {
  const bool store_buffers = GENERATE(true, false);
  std::uint64_t full_executions = 0;
  std::uint64_t sleep_executions = 0;
  for (unsigned seed = 1; seed <= 300; ++seed) {
    INFO("seed " << seed << ", store buffers " << store_buffers);
    const RandomProgram program = random_program(seed);
    Result full;
    Result sleep;
    const Outcomes expected =
        outcomes_of(program, {.store_buffers = store_buffers, .reduction = Reduction::None}, &full);
    CHECK(outcomes_of(program, {.store_buffers = store_buffers, .reduction = Reduction::LateFlush}) == expected);
    CHECK(outcomes_of(program, {.store_buffers = store_buffers, .reduction = Reduction::SleepSets}, &sleep) ==
          expected);
    full_executions += full.executions;
    sleep_executions += sleep.executions;
  }
  CHECK(sleep_executions < full_executions / 4);
}

TEST_CASE("explorer finds the same outcomes within a preemption bound whether flushes are late or at any time") {
  for (unsigned seed = 1; seed <= 60; ++seed) {
    for (unsigned bound = 0; bound <= 2; ++bound) {
      INFO("seed " << seed << ", bound " << bound);
      const RandomProgram program = random_program(seed);
      const Outcomes any_time = outcomes_of(program, {.preemption_bound = bound, .reduction = Reduction::None});
      CHECK(outcomes_of(program, {.preemption_bound = bound, .reduction = Reduction::LateFlush}) == any_time);
    }
  }
}

TEST_CASE("explorer proves a toy eventcount and finds its wake-up lost without the heavy barrier or the second look") {
  const auto reduction = GENERATE(Reduction::None, Reduction::LateFlush, Reduction::SleepSets);
  const Explorer explorer{{.reduction = reduction}};
  const Result correct = explorer.run(event_count<Defect::None>);
  INFO(correct.to_string());
  CHECK(correct.complete);

  const Result unfenced = explorer.run(event_count<Defect::NoFence>);
  REQUIRE(unfenced.failure.has_value());
  CHECK(unfenced.failure->message == "deadlock: parked for ever: consumer");
  const Result careless = explorer.run(event_count<Defect::NoSecondLook>);
  REQUIRE(careless.failure.has_value());
  CHECK(careless.failure->message == "deadlock: parked for ever: consumer");

  // Under sequential consistency the missing fence does no harm: it is the store buffer that hides the flag.
  CHECK(Explorer{{.store_buffers = false, .reduction = reduction}}.run(event_count<Defect::NoFence>).complete);
}

TEST_CASE("explorer wakes a parked thread without a reason as often as it may") {
  unsigned most = 0;
  const Result result = Explorer{{.spurious_wakeups = 2}}.run([&](Execution& execution) {
    auto events = std::make_shared<EventCount>();
    execution.thread("sleeper", [=, &most] {
      unsigned slept = 0;
      while (events->parked.load(acquire) == 0) {
        ModelPlatform::park(events->parked, 0);
        ++slept;
      }
      most = std::max(most, slept);
    });
    execution.thread("waker", [=] {
      events->parked.store(1);
      ModelPlatform::wake(events->parked);
    });
  });
  INFO(result.to_string());
  CHECK(result.complete);
  CHECK(most == 3);
}

TEST_CASE("explorer finds a planted reordering") {
  // The message is sent after the flag.
  const Result result = Explorer{{.preemption_bound = 1}}.run([](Execution& execution) {
    auto words = std::make_shared<Words>();
    execution.name(&words->word[0], "message");
    execution.name(&words->word[1], "flag");
    execution.thread("sender", [=] {
      words->word[1].store(1, release);
      words->word[0].store(7, relaxed);
    });
    execution.thread("receiver", [=] {
      if (words->word[1].load(acquire) == 1)
        model_assert(words->word[0].load(relaxed) == 7, "the flag overtook the message");
    });
  });
  REQUIRE(result.failure.has_value());
  CHECK(result.failure->message == "the flag overtook the message");
  CHECK(result.failure->trace.find("sender        store flag = 1") != std::string::npos);
  CHECK(result.failure->trace.find("receiver      load message -> 0") != std::string::npos);
}

TEST_CASE("explorer finds ABA in a stack without versions and none in one with versions") {
  const auto reduction = GENERATE(Reduction::LateFlush, Reduction::SleepSets);
  const Explorer explorer{{.reduction = reduction}};
  const Result naive = explorer.run(treiber_stack<false>);
  REQUIRE(naive.failure.has_value());
  CHECK(naive.failure->message == "one element popped twice");
  const Result versioned = explorer.run(treiber_stack<true>);
  INFO(versioned.to_string());
  CHECK(versioned.complete);
}

TEST_CASE("explorer finds second frees, uses after free and leaks") {
  const auto reduction = GENERATE(Reduction::None, Reduction::LateFlush, Reduction::SleepSets);
  const auto message_of = [&](auto&& set_up) {
    const Result result = Explorer{{.reduction = reduction}}.run(set_up);
    REQUIRE(result.failure.has_value());
    return result.failure->message;
  };
  struct Owner {
    atomic<void*> block{ModelPlatform::allocate_block(64, 64)};
  };
  CHECK(message_of([](Execution& execution) {
          auto owner = std::make_shared<Owner>();
          const auto drop = [=] {
            if (void* block = owner->block.load()) {
              owner->block.store(nullptr);
              ModelPlatform::free_block(block);
            }
          };
          execution.thread("one", drop);
          execution.thread("two", drop);
        }) == "second free of a block");
  CHECK(message_of([](Execution& execution) {
          auto owner = std::make_shared<Owner>();
          ::new (owner->block.load()) atomic<int>(5);
          execution.thread("reader", [=] {
            if (auto* value = static_cast<atomic<int>*>(owner->block.load())) value->load();
          });
          execution.thread("owner", [=] { ModelPlatform::free_block(owner->block.exchange(nullptr)); });
        }) == "use of a freed block");
  CHECK(message_of([](Execution& execution) {
          auto owner = std::make_shared<Owner>();
          execution.thread("idle", [=] { owner->block.load(); });
        }) == "a block of 64 bytes was never freed");
}

TEST_CASE("explorer finds two locks taken in opposite orders") {
  struct Lock {
    atomic<std::uint32_t> held{0};
    void acquire_lock() {
      while (held.exchange(1) != 0) ModelPlatform::park(held, 1);
    }
    void release_lock() {
      held.store(0);
      ModelPlatform::wake(held);
    }
  };
  const auto program = [](bool same_order) {
    return [=](Execution& execution) {
      auto locks = std::make_shared<std::array<Lock, 2>>();
      for (std::size_t index = 0; index < 2; ++index) {
        execution.thread(index == 0 ? "one" : "two", [=] {
          Lock& first = (*locks)[same_order ? 0 : index];
          Lock& second = (*locks)[same_order ? 1 : 1 - index];
          first.acquire_lock();
          second.acquire_lock();
          second.release_lock();
          first.release_lock();
        });
      }
    };
  };
  const Explorer explorer{{.preemption_bound = 2}};
  CHECK(explorer.run(program(true)).complete);
  const Result result = explorer.run(program(false));
  REQUIRE(result.failure.has_value());
  CHECK(result.failure->message == "deadlock: parked for ever: one, two");
}

TEST_CASE("explorer ends spin loops that somebody ends and reports those that nobody ends") {
  const auto reduction = GENERATE(Reduction::None, Reduction::LateFlush, Reduction::SleepSets);
  const auto program = [](int sent) {
    return [=](Execution& execution) {
      auto words = std::make_shared<Words>();
      execution.thread("spinner", [=] {
        while (words->word[0].load(acquire) != 2) ModelPlatform::pause();
        model_assert(words->word[1].load(relaxed) == 1, "the spinner went on too early");
      });
      execution.thread("sender", [=] {
        words->word[1].store(1, relaxed);
        words->word[0].store(1, relaxed);
        words->word[0].store(sent, release);
      });
    };
  };
  const Explorer explorer{{.reduction = reduction}};
  const Result ends = explorer.run(program(2));
  INFO(ends.to_string());
  CHECK(ends.complete);
  const Result spins = explorer.run(program(3));
  REQUIRE(spins.failure.has_value());
  CHECK(spins.failure->message == "livelock: threads spin and nobody changes anything");
}

TEST_CASE("explorer lets a spin loop that counts go on and give up") {
  const auto run_with = [](Pause pause) {
    unsigned gave_up = 0;
    const Result result = Explorer{{.pause = pause}}.run([&](Execution& execution) {
      auto words = std::make_shared<Words>();
      execution.thread("spinner", [=, &gave_up] {
        for (int spin = 0; spin < 2; ++spin) {
          if (words->word[0].load(acquire) == 1) return;
          ModelPlatform::pause();
        }
        ++gave_up;
      });
      execution.thread("sender", [=] { words->word[0].store(1, release); });
    });
    CHECK(result.complete);
    return gave_up;
  };
  CHECK(run_with(Pause::Yield) > 0);
}

TEST_CASE("explorer reports an execution that is too long") {
  const Result result = Explorer{{.max_steps = 100}}.run([](Execution& execution) {
    auto words = std::make_shared<Words>();
    execution.thread("busy", [=] {
      for (;;) words->word[0].fetch_add(1);
    });
  });
  REQUIRE(result.failure.has_value());
  CHECK(result.failure->message == "livelock: an execution has more than 100 steps");
}

TEST_CASE("explorer reports what model threads throw, and keeps exceptions of interleaved threads apart") {
  const Result thrown = Explorer{{}}.run(
      [](Execution& execution) { execution.thread("thrower", [] { throw std::runtime_error("no"); }); });
  REQUIRE(thrown.failure.has_value());
  CHECK(thrown.failure->message == "exception left thread thrower: no");

  const Result caught = Explorer{{}}.run([](Execution& execution) {
    auto words = std::make_shared<Words>();
    for (int index = 0; index < 2; ++index) {
      execution.thread("catcher " + std::to_string(index), [=] {
        try {
          words->word[0].fetch_add(1);
          throw index;
        } catch (int value) {
          words->word[1].fetch_add(1);
          try {
            throw;
          } catch (int again) {
            words->word[0].fetch_sub(1);
            model_assert(again == value && value == index, "an exception reached another thread");
          }
        }
      });
    }
  });
  INFO(caught.to_string());
  CHECK(caught.complete);
}

TEST_CASE("explorer gives growing stamps, and tied ones only to neighbours and on request") {
  const auto program = [](std::set<std::pair<std::uint64_t, std::uint64_t>>& stamps) {
    return [&stamps](Execution& execution) {
      auto taken = std::make_shared<std::array<std::uint64_t, 2>>();
      auto words = std::make_shared<Words>();
      execution.thread("one", [=] {
        (*taken)[0] = ModelPlatform::now();
        words->word[0].store(1);
      });
      execution.thread("two", [=] {
        const bool after = words->word[0].load() == 1;
        (*taken)[1] = ModelPlatform::now();
        model_assert(!after || (*taken)[1] > (*taken)[0], "a later stamp is not greater");
      });
      execution.finally([=, &stamps] { stamps.emplace((*taken)[0], (*taken)[1]); });
    };
  };
  std::set<std::pair<std::uint64_t, std::uint64_t>> stamps;
  CHECK(Explorer{{}}.run(program(stamps)).complete);
  CHECK(stamps == std::set<std::pair<std::uint64_t, std::uint64_t>>{{1, 2}, {2, 1}});
  stamps.clear();
  CHECK(Explorer{{.tied_stamps = true}}.run(program(stamps)).complete);
  CHECK(stamps == std::set<std::pair<std::uint64_t, std::uint64_t>>{{1, 2}, {2, 1}, {1, 1}});
}

TEST_CASE("explorer explores every outcome of a choice") {
  std::multiset<unsigned> chosen;
  const Result result = Explorer{{}}.run([&](Execution& execution) {
    execution.thread("chooser", [&] { chosen.insert(model_choose(2) * 3 + model_choose(3)); });
  });
  CHECK(result.executions == 6);
  CHECK(chosen == std::multiset<unsigned>{0, 1, 2, 3, 4, 5});
}

TEST_CASE("explorer refuses sleep sets with a preemption bound") {
  CHECK_THROWS_AS((Explorer{{.preemption_bound = 2, .reduction = Reduction::SleepSets}}.run([](Execution&) {})),
                  std::invalid_argument);
}
