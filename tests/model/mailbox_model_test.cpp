// The mailbox and the lane themselves, in every interleaving of small programs. Each test says what it bounds: the
// number of preemptions of threads that could go on; flushes of store buffers, parks and pauses do not count.

#include <coxswain/device_handle/queue/mailbox.hpp>

#include <coxswain/tests/model/explorer.hpp>
#include <coxswain/tests/model/model_platform.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

using namespace cox;
using namespace cox::model;

namespace {

/// The explorer's platform with the smallest blocks that a lane can use: two cells, so that segments end often. Blocks
/// are not recycled, so that any use after a return is found.
struct ExploredPlatform : ModelPlatform {
  struct BlockPool {
    static constexpr std::size_t block_bytes = 3 * cache_line;
    static constexpr std::size_t block_alignment = cache_line;
    void* allocate() { return allocate_block(block_bytes, block_alignment); }
    void recycle(void* block) noexcept { free_block(block); }
    void free(void* block) noexcept { free_block(block); }
    void trim() noexcept {}
    std::size_t bytes() const noexcept { return 0; }
  };
};

/// Leaves a lane after the first round in which it has nothing.
struct HastyPlatform : ExploredPlatform {
  static constexpr std::uint32_t idle_rounds = 1;
};

/// Where there is no synchronised clock: stamps come from one counter.
struct CountingPlatform : ExploredPlatform {
  static bool clock_runs() noexcept { return false; }
};

/// Planted: the side that parks or closes does not fence.
struct WithoutHeavyBarrier : ExploredPlatform {
  static void heavy_barrier() noexcept {}
};

/// Planted: the clock of the first thread runs ahead of the others', as when the cores' counters are not synchronised.
struct WithSkewedClock : CountingPlatform {
  static std::uint64_t now() noexcept { return CountingPlatform::now() + (model_thread() == 0 ? 3 : 0); }
};

/// Planted: every stamp may be one from before the push, not only those of a lane that is attended to alone.
struct WithEarlyStamps : ExploredPlatform {
  static std::uint64_t now() noexcept { return now_early(); }
};

/// Planted: stamps of a lane that is attended to alone are ahead of the clock.
struct WithFutureStamps : ExploredPlatform {
  static constexpr std::uint64_t stamps_per_tick = 1;
  static std::uint64_t now_early() noexcept { return now() + 2; }
};

/// Planted: the device thread runs all it sees, also what was stamped after it began to look.
struct WithoutCut : ExploredPlatform {
  static std::uint64_t now_fenced() noexcept { return ~std::uint64_t{0}; }
};

/// The kernel refuses to fence all threads from some moment on, as after a seccomp filter was installed.
struct RefusingMachine {
  template <class T>
  using atomic = ModelPlatform::atomic<T>;
  static inline bool refuses = false;
  static bool fence_all_threads() noexcept {
    if (refuses) return false;
    ModelPlatform::heavy_barrier();
    return true;
  }
  static void full_fence() noexcept { ModelPlatform::full_barrier(); }
  static void drain_stores() noexcept { ModelPlatform::heavy_barrier(); }
};

template <class Machine>
struct RefusedBarrier : ExploredPlatform {
  static inline AsymmetricFence<Machine> fence;
  static void light_barrier() noexcept { fence.light(); }
  static void heavy_barrier() noexcept { fence.heavy(); }
  static void begin() {
    Machine::refuses = false;
    fence.start(true);
  }
  static void happen() { Machine::refuses = true; }
};

/// Planted: what is still in the store buffers when the light half becomes a fence is not waited for.
struct HastyMachine : RefusingMachine {
  static void drain_stores() noexcept {}
};

/// Planted: the light half stays free when the heavy half is refused.
struct WithFreeLightHalf : RefusedBarrier<RefusingMachine> {
  static void light_barrier() noexcept {}
  static void heavy_barrier() noexcept {
    RefusingMachine::refuses ? full_barrier() : ExploredPlatform::heavy_barrier();
  }
};

/// The clock is set back at some moment; from when that is noticed on, stamps come from a counter.
struct SetBackClock : ExploredPlatform {
  static constexpr std::uint64_t far = std::uint64_t{1} << 40;
  static constexpr std::uint64_t clock_tolerance = 64;
  static inline std::uint64_t ahead = far;
  static inline atomic<bool> pushes_read_clock{true};
  static inline atomic<bool> device_reads_clock{true};

  static std::uint64_t counter() noexcept { return 2 * far + ExploredPlatform::now(); }
  static std::uint64_t now() noexcept {
    return pushes_read_clock.load(std::memory_order_relaxed) ? ahead + ExploredPlatform::now() : counter();
  }
  static std::uint64_t now_early() noexcept { return ahead + ExploredPlatform::now(); }
  static std::uint64_t now_fenced() noexcept {
    return device_reads_clock.load(std::memory_order_acquire) ? ahead + ExploredPlatform::now() : counter();
  }
  static bool clock_runs() noexcept { return pushes_read_clock.load(std::memory_order_relaxed); }
  static void distrust_clock() noexcept {
    if (!device_reads_clock.load(std::memory_order_acquire)) return;
    pushes_read_clock.store(false, std::memory_order_relaxed);
    heavy_barrier();
    device_reads_clock.store(false, std::memory_order_release);
  }
  static void begin() {
    ahead = far;
    pushes_read_clock.store(true);
    device_reads_clock.store(true);
  }
  static void happen() { ahead = 0; }
};

/// Planted: nothing notices.
struct WithBlindClock : SetBackClock {
  static void distrust_clock() noexcept {}
};

/// Planted: a thread that waits for room is not woken.
struct WithoutWakingForRoom : ExploredPlatform {
  static void wake_all(atomic<std::uint32_t>&) noexcept {}
};

/// A mailbox, what was pushed into it, and what came out.
template <class Platform>
struct Harbour {
  template <class T>
  using atomic = typename Platform::template atomic<T>;
  using Mailbox = BasicMailbox<Platform>;
  using Lane = typename Mailbox::Lane;
  static constexpr std::size_t most_tasks = 8;

  struct Unbuildable {};

  struct Entry {
    Harbour* harbour;
    std::size_t id;

    Outcome operator()() noexcept {
      model_assert(++harbour->runs[id] == 1, "L2: a task ran twice");
      harbour->order.push_back(id);
      return Outcome::Completed;
    }
    void discard(CallError::Kind) noexcept { ++harbour->discards[id]; }
  };

  explicit Harbour(QueuePolicy policy = QueuePolicy::Grow, std::size_t capacity = 0) : mailbox(policy, capacity) {}

  /// Pushes task `id`. Returns whether it was accepted.
  bool push(Lane& lane, std::size_t id) {
    const PushResult result = mailbox.push(lane, Entry{this, id}, 0);
    accepted[id] = result == PushResult::Queued || result == PushResult::Woke;
    return accepted[id];
  }

  /// Begins to push a task that cannot be built.
  void push_unbuildable(Lane& lane) {
    try {
      mailbox.push(lane, [this]() -> Entry { throw Unbuildable(); }, 0);
    } catch (const Unbuildable&) {
    }
  }

  std::size_t run_ready() {
    return mailbox.run_ready([](const typename Mailbox::Item& item) { return item.ops->run(item.object), true; });
  }

  /// The device thread's life until so many tasks ran. Returns only if no wake-up is lost (L3).
  void run_until(std::size_t count) {
    while (order.size() < count) {
      if (run_ready() == 0) mailbox.park();
    }
  }

  /// The device thread's life until the mailbox is closed; then all that was accepted is run.
  void run_until_closed(bool parks = true) {
    while (!mailbox.closing()) {
      if (!parks) {
        Platform::pause();
      } else if (run_ready() == 0) {
        mailbox.park();
      }
    }
    mailbox.quiesce();
    while (!mailbox.empty()) run_ready();
  }

  bool runs_before(std::size_t first, std::size_t second) const {
    return std::find(order.begin(), order.end(), first) < std::find(order.begin(), order.end(), second);
  }

  /// Tasks accepted and not yet begun. The explorer runs one thread at a time, so plain reads are exact.
  std::size_t queued() const {
    std::size_t count = 0;
    for (std::size_t id = 0; id < most_tasks; ++id) count += accepted[id] && runs[id] == 0 ? 1U : 0U;
    return count;
  }

  void check_conservation() const {
    for (std::size_t id = 0; id < most_tasks; ++id) {
      model_assert(runs[id] + discards[id] <= 1, "L2: a task ended twice");
      model_assert(!accepted[id] || runs[id] == 1, "L2: an accepted task never ran");
      model_assert(accepted[id] || runs[id] == 0, "L4: a refused task ran");
    }
  }

  void name_words(Execution& execution, const std::vector<Lane*>& lanes) {
    execution.name(&mailbox, "mailbox", sizeof(Mailbox));
    for (std::size_t index = 0; index < lanes.size(); ++index) {
      execution.name(lanes[index], "lane" + std::to_string(index), sizeof(Lane));
      execution.name(&lanes[index]->busy, "lane" + std::to_string(index) + ".busy");
      execution.name(&lanes[index]->attended, "lane" + std::to_string(index) + ".on_launch_thread");
    }
    execution.name(&handed_over, "handed_over");
  }

  Mailbox mailbox;
  atomic<int> handed_over{0};
  std::vector<std::size_t> order;
  std::array<int, most_tasks> runs{};
  std::array<int, most_tasks> discards{};
  std::array<bool, most_tasks> accepted{};
  std::array<bool, most_tasks> after{};
};

/// `producers` threads push `pushes` tasks each; no further traffic. The device thread must run them all, in each
/// producer's order.
template <class Platform>
auto pushing(std::size_t producers, std::size_t pushes, bool lanes_made_by_threads = false) {
  return [=](Execution& execution) {
    auto harbour = std::make_shared<Harbour<Platform>>();
    std::vector<typename Harbour<Platform>::Lane*> lanes(producers, nullptr);
    if (!lanes_made_by_threads) {
      for (auto*& lane : lanes) lane = &harbour->mailbox.acquire_lane();
      harbour->name_words(execution, lanes);
    }
    for (std::size_t index = 0; index < producers; ++index) {
      execution.thread("producer" + std::to_string(index), [=] {
        auto& lane = lanes_made_by_threads ? harbour->mailbox.acquire_lane() : *lanes[index];
        for (std::size_t task = 0; task < pushes; ++task) {
          model_assert(harbour->push(lane, index * pushes + task), "an open mailbox refused a task");
        }
        if (lanes_made_by_threads) harbour->mailbox.release_lane(lane);
      });
    }
    execution.thread("device", [=] { harbour->run_until(producers * pushes); });
    execution.finally([=] {
      harbour->check_conservation();
      for (std::size_t index = 0; index < producers; ++index) {
        for (std::size_t task = 1; task < pushes; ++task) {
          const std::size_t id = index * pushes + task;
          model_assert(harbour->runs_before(id - 1, id), "L1: a producer's own order was broken");
        }
      }
    });
  };
}

/// Which lanes of two the device thread attends to when a program begins. `First`, `Second`: that one alone, with its
/// privilege.
enum class Attended { None, First, Second, Both };

/// One producer pushes task 0, tells the other, and pushes `more` further tasks. The other one pushes, and if it has
/// been told, its task must run after task 0.
template <class Platform>
auto handing_over(std::size_t more, Attended attended = Attended::None) {
  return [=](Execution& execution) {
    auto harbour = std::make_shared<Harbour<Platform>>();
    auto& first = harbour->mailbox.acquire_lane();
    auto& second = harbour->mailbox.acquire_lane();
    harbour->name_words(execution, {&first, &second});
    // The last to arrive is looked at first.
    if (attended == Attended::Second || attended == Attended::Both) harbour->push(second, 7);
    if (attended == Attended::First || attended == Attended::Both) harbour->push(first, 6);
    while (attended != Attended::None && harbour->run_ready() != 0) {
    }
    const std::size_t count = harbour->order.size() + 2 + more;
    execution.thread("first", [=, &first] {
      harbour->push(first, 0);
      harbour->handed_over.store(1, std::memory_order_release);
      for (std::size_t task = 1; task <= more; ++task) harbour->push(first, task);
    });
    execution.thread("second", [=, &second] {
      harbour->after[5] = harbour->handed_over.load(std::memory_order_acquire) == 1;
      harbour->push(second, 5);
    });
    execution.thread("device", [=] { harbour->run_until(count); });
    execution.finally([=] {
      harbour->check_conservation();
      model_assert(!harbour->after[5] || harbour->runs_before(0, 5),
                   "L1: a task overtook one whose push had returned before");
    });
  };
}

/// `producers` threads push `pushes` tasks each while another one closes and then tries to push. With `warm`, the first
/// lane has been attended to before.
template <class Platform>
auto closing(std::size_t producers, std::size_t pushes, bool warm = false, bool parks = true) {
  return [=](Execution& execution) {
    auto harbour = std::make_shared<Harbour<Platform>>();
    std::vector<typename Harbour<Platform>::Lane*> lanes;
    for (std::size_t index = 0; index <= producers; ++index) lanes.push_back(&harbour->mailbox.acquire_lane());
    harbour->name_words(execution, lanes);
    if (warm) {
      harbour->push(*lanes[0], 6);
      harbour->run_ready();
    }
    for (std::size_t index = 0; index < producers; ++index) {
      execution.thread("producer" + std::to_string(index), [=] {
        for (std::size_t task = 0; task < pushes; ++task) {
          const bool closed = harbour->handed_over.load(std::memory_order_acquire) == 1;
          const bool accepted = harbour->push(*lanes[index], index * pushes + task);
          model_assert(!closed || !accepted, "L4: a push was accepted after close() had returned");
        }
      });
    }
    execution.thread("closer", [=] {
      harbour->mailbox.close();
      harbour->handed_over.store(1, std::memory_order_release);
      model_assert(!harbour->push(*lanes.back(), 7), "L4: a push was accepted after close() had returned");
    });
    execution.thread("device", [=] { harbour->run_until_closed(parks); });
    execution.finally([=] { harbour->check_conservation(); });
  };
}

/// Two producers push `pushes` tasks each into a mailbox of capacity 1 and wait for room. With `close_it`, a third
/// thread closes it, and nobody may wait for ever.
template <class Platform>
auto waiting_for_room(std::size_t pushes, bool close_it) {
  return [=](Execution& execution) {
    auto harbour = std::make_shared<Harbour<Platform>>(QueuePolicy::Block, 1);
    auto& first = harbour->mailbox.acquire_lane();
    auto& second = harbour->mailbox.acquire_lane();
    harbour->name_words(execution, {&first, &second});
    const auto produce = [=](auto& lane, std::size_t id) {
      for (std::size_t task = 0; task < pushes; ++task) {
        const bool accepted = harbour->push(lane, id + task);
        model_assert(accepted || close_it, "an open mailbox refused a task");
        model_assert(harbour->queued() <= 1, "L7: more tasks were queued than the capacity allows");
      }
    };
    execution.thread("first", [=, &first] { produce(first, 0); });
    execution.thread("second", [=, &second] { produce(second, pushes); });
    if (close_it) {
      execution.thread("closer", [=] { harbour->mailbox.close(); });
      execution.thread("device", [=] { harbour->run_until_closed(); });
    } else {
      execution.thread("device", [=] { harbour->run_until(2 * pushes); });
    }
    execution.finally([=] { harbour->check_conservation(); });
  };
}

/// Into a mailbox of capacity 1 one thread begins to push a task that cannot be built, and another one pushes and waits
/// for room.
template <class Platform>
auto failing_to_build(bool on_loan) {
  return [=](Execution& execution) {
    auto harbour = std::make_shared<Harbour<Platform>>(QueuePolicy::Block, 1);
    auto& first = harbour->mailbox.acquire_lane();
    auto& second = harbour->mailbox.acquire_lane();
    first.on_loan = on_loan;
    harbour->name_words(execution, {&first, &second});
    execution.thread("first", [=, &first] { harbour->push_unbuildable(first); });
    execution.thread("second", [=, &second] { harbour->push(second, 1); });
    execution.thread("device", [=] { harbour->run_until(1); });
    execution.finally([=] { harbour->check_conservation(); });
  };
}

/// `program`, and at some moment of it what its platform is for.
template <class Platform>
auto during(std::function<void(Execution&)> program) {
  return [program = std::move(program)](Execution& execution) {
    Platform::begin();
    program(execution);
    execution.thread("machine", [] {
      ModelPlatform::full_barrier();
      Platform::happen();
    });
  };
}

using Program = std::function<void(Execution&)>;

// A sanitizer makes each step ten times slower and finds its faults with fewer of them.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr unsigned most_preemptions = 1;
#else
constexpr unsigned most_preemptions = 16;
#endif

/// True if no interleaving fails. What the search did is shown if the check around it fails.
bool holds(const Program& program, unsigned preemptions, unsigned spurious_wakeups = 0) {
  const Result result =
      Explorer{{.preemption_bound = std::min(preemptions, most_preemptions), .spurious_wakeups = spurious_wakeups}}.run(
          program);
  UNSCOPED_INFO(result.to_string());
  return result.complete;
}

/// The message of the first failure, or nothing.
std::string failure_of(const Program& program, unsigned preemptions) {
  const Result result = Explorer{{.preemption_bound = preemptions}}.run(program);
  UNSCOPED_INFO(result.to_string());
  return result.failure ? result.failure->message : "";
}

constexpr const char* overtaken = "L1: a task overtook one whose push had returned before";

}  // namespace

TEST_CASE("L2 L3: what one producer pushes is run once, and no wake-up is lost (3 preemptions)") {
  CHECK(holds(pushing<ExploredPlatform>(1, 1), 3, 1));
  CHECK(holds(pushing<ExploredPlatform>(1, 2), 3));
  CHECK(holds(pushing<ExploredPlatform>(1, 5), 1));  // three segments
}

TEST_CASE("L2 L3: what two producers push is run once, and no wake-up is lost (2 preemptions)") {
  CHECK(holds(pushing<ExploredPlatform>(2, 1), 2));
  CHECK(holds(pushing<ExploredPlatform>(2, 2), 1));
  CHECK(holds(pushing<CountingPlatform>(2, 1), 2));
  CHECK(holds(pushing<HastyPlatform>(2, 1), 2));
  CHECK(holds(pushing<HastyPlatform>(2, 2), 1));
}

TEST_CASE("L2 L3: what three producers push is run once, and no wake-up is lost (1 preemption)") {
  CHECK(holds(pushing<ExploredPlatform>(3, 1), 1));
  CHECK(holds(pushing<HastyPlatform>(3, 1), 1));
}

TEST_CASE("L2 L3: lanes change hands without losing a task (1 preemption)") {
  CHECK(holds(pushing<ExploredPlatform>(2, 1, true), 1));
  CHECK(holds(pushing<ExploredPlatform>(2, 2, true), 1));
}

TEST_CASE("L1: a push that follows another thread's through a hand-over runs after it (2 preemptions)") {
  const Attended attended = GENERATE(Attended::None, Attended::First, Attended::Second, Attended::Both);
  CHECK(holds(handing_over<ExploredPlatform>(0, attended), 2));
  CHECK(holds(handing_over<ExploredPlatform>(1, attended), 2));
  CHECK(holds(handing_over<CountingPlatform>(1, attended), 1));
  CHECK(holds(handing_over<HastyPlatform>(0, attended), 2));
  CHECK(holds(handing_over<HastyPlatform>(1, attended), 2));
}

TEST_CASE("L2 L4: close lets nothing in after it and loses nothing from before (2 preemptions)") {
  CHECK(holds(closing<ExploredPlatform>(1, 1), 2));
  CHECK(holds(closing<ExploredPlatform>(1, 1, true), 2));
  CHECK(holds(closing<ExploredPlatform>(1, 2), 1));
  CHECK(holds(closing<ExploredPlatform>(1, 2, true), 1));
  CHECK(holds(closing<ExploredPlatform>(2, 1), 1));
}

TEST_CASE("L3 L7: who waits for room gets it or is refused by close (1 preemption)") {
  CHECK(holds(waiting_for_room<ExploredPlatform>(1, false), 2));
  CHECK(holds(waiting_for_room<ExploredPlatform>(2, false), 1));
  CHECK(holds(waiting_for_room<ExploredPlatform>(1, true), 1));
}

TEST_CASE("L3 L7: a task that cannot be built keeps no room in the queue (2 preemptions)") {
  CHECK(holds(failing_to_build<ExploredPlatform>(false), 2));
  CHECK(holds(failing_to_build<ExploredPlatform>(true), 2));
}

TEST_CASE("L2 L3 L4: nothing is lost when the kernel begins to refuse the heavy barrier (1 preemption)") {
  using Platform = RefusedBarrier<RefusingMachine>;
  CHECK(holds(during<Platform>(pushing<Platform>(1, 1)), 2));
  CHECK(holds(during<Platform>(pushing<Platform>(1, 2)), 2));
  CHECK(holds(during<Platform>(pushing<Platform>(2, 1)), 1));
  CHECK(holds(during<Platform>(closing<Platform>(1, 1, true)), 1));
}

TEST_CASE("L1 L2 L3: nothing is lost or overtaken when the clock is set back (1 preemption)") {
  CHECK(holds(during<SetBackClock>(pushing<SetBackClock>(2, 1)), 1));
  CHECK(holds(during<SetBackClock>(handing_over<SetBackClock>(0, Attended::Both)), 1));
  CHECK(holds(during<SetBackClock>(handing_over<SetBackClock>(1, Attended::Both)), 1));
  CHECK(holds(during<SetBackClock>(closing<SetBackClock>(1, 1, true)), 1));
}

TEST_CASE("the search finds planted neglect of a refused barrier") {
  CHECK(failure_of(during<WithFreeLightHalf>(pushing<WithFreeLightHalf>(1, 2)), 2) ==
        "deadlock: parked for ever: device");
  using Hasty = RefusedBarrier<HastyMachine>;
  CHECK(failure_of(during<Hasty>(pushing<Hasty>(1, 2)), 3) == "deadlock: parked for ever: device");
}

TEST_CASE("the search finds planted neglect of a clock that is set back") {
  CHECK(failure_of(during<WithBlindClock>(pushing<WithBlindClock>(2, 1)), 1) ==
        "livelock: an execution has more than 20000 steps");
}

TEST_CASE("the search finds a planted wait for room that does not end") {
  CHECK(failure_of(failing_to_build<WithoutWakingForRoom>(false), 1) == "deadlock: parked for ever: second, device");
}

TEST_CASE("the search finds a planted lost wake-up: parking without the heavy barrier") {
  CHECK(failure_of(pushing<WithoutHeavyBarrier>(1, 1), 1) == "deadlock: parked for ever: device");
}

TEST_CASE("the search finds a planted loss: closing without the heavy barrier") {
  CHECK(failure_of(closing<WithoutHeavyBarrier>(1, 1, false, false), 1) == "L2: an accepted task never ran");
}

TEST_CASE("the search finds planted reorderings") {
  CHECK(failure_of(handing_over<WithSkewedClock>(0), 1) == overtaken);
  CHECK(failure_of(handing_over<WithEarlyStamps>(0), 1) == overtaken);
  CHECK(failure_of(handing_over<WithFutureStamps>(1, Attended::First), 2) == overtaken);
  CHECK(failure_of(handing_over<WithoutCut>(0, Attended::Both), 2) == overtaken);
}

TEST_CASE("L1 L2 L3 L4: the same with more preemptions, a matter of many minutes", "[.deep]") {
  CHECK(holds(pushing<ExploredPlatform>(1, 2), 5));
  CHECK(holds(pushing<ExploredPlatform>(2, 1), 3));
  CHECK(holds(pushing<ExploredPlatform>(2, 2), 2));
  CHECK(holds(pushing<ExploredPlatform>(3, 1), 2));
  CHECK(holds(handing_over<ExploredPlatform>(1), 3));
  CHECK(holds(handing_over<ExploredPlatform>(1, Attended::First), 3));
  CHECK(holds(handing_over<ExploredPlatform>(1, Attended::Second), 3));
  CHECK(holds(handing_over<ExploredPlatform>(1, Attended::Both), 3));
  CHECK(holds(closing<ExploredPlatform>(1, 1, true), 3));
  CHECK(holds(closing<ExploredPlatform>(1, 2, true), 2));
  CHECK(holds(closing<ExploredPlatform>(2, 1, true), 2));
  CHECK(holds(waiting_for_room<ExploredPlatform>(2, false), 2));
  CHECK(holds(waiting_for_room<ExploredPlatform>(1, true), 2));
  CHECK(holds(pushing<HastyPlatform>(2, 2), 2));
  CHECK(holds(handing_over<HastyPlatform>(1, Attended::Both), 3));
  CHECK(holds(closing<HastyPlatform>(2, 1, true), 2));
}
