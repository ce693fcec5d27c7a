#pragma once

#include <coxswain/tests/model/explorer.hpp>
#include <coxswain/tests/model/fiber.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cox::model {

constexpr std::size_t max_threads = 16;

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

inline std::uint64_t read_memory(const void* address, std::size_t bytes) noexcept {
  std::uint64_t value = 0;
  std::memcpy(&value, address, bytes);
  return value;
}

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

/// What runs on the calling thread; null outside of a search.
inline constinit thread_local Engine* active_engine = nullptr;

}  // namespace cox::model
