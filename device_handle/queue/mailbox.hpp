#pragma once

#include <coxswain/device_handle/base/queue_policy.hpp>
#include <coxswain/device_handle/queue/credits.hpp>
#include <coxswain/device_handle/queue/lane.hpp>
#include <coxswain/device_handle/queue/lane_list.hpp>
#include <coxswain/device_handle/queue/platform.hpp>
#include <coxswain/device_handle/queue/task.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace cox {

/// The result of a push.
enum class PushResult : std::uint8_t {
  Queued,  ///< Accepted; the device thread is awake, or being woken by another thread, and will see it.
  Woke,    ///< Accepted; the device thread was parked and has been woken by this push.
  Closed,  ///< Refused: close() was called (L4).
  Forked,  ///< Refused: this process is a forked child.
  Full,    ///< Refused: the queue is at capacity and the policy is Fail.
};

/// The ordered queue from any number of client threads to one device thread.
///
/// Every client thread has a Lane of its own and stamps the closures that it pushes. The device thread reads the clock
/// (T), then every lane, and runs in stamp order the closures that were stamped before T.
///
/// Law L1 holds: let submit(a) return before submit(b) is called. Then a was published before b was stamped, hence
/// stamp(a) < stamp(b). The device thread runs b only after it has read a T > stamp(b), and it reads the lanes after T.
/// By then a was published, so the device thread sees a, and a runs first because its stamp is earlier. Compare Dodds,
/// Haas and Kirsch, "A Scalable, Correct Time-Stamped Stack" (POPL 2015), for the idea of ordering by interval stamps.
///
/// If the device thread attends to one lane only, that lane has a privilege: its stamps need not be exact, and most of
/// them need no reading of the clock. A thread that pushes to another lane must first add that lane to the arrivals,
/// which ends the privilege. So if submit(b) on another lane returned before submit(a) on the sole lane is called, the
/// push of a finds that the privilege has ended and takes an exact stamp. A stamp that was taken early before that is
/// in the past, never in the future. The privilege is one word, `arrivals_`: either a mark that names the sole lane, or
/// the list of lanes that have arrived.
///
/// The device thread attends to a lane from its first push until the device thread parks or has found the lane empty
/// for many rounds. A client pays for this with one load of `attended` in its own lane. The client publishes, then
/// checks whether its lane is attended; the device thread stops attending, then checks whether something was published.
/// Both need a store-load fence, and the device thread pays for both (heavy_barrier).
///
///        push, attended                   push, not attended: add to arrivals, wake
///          .----.                        .--------------------------------------.
///          v    |                        |                                      v
///     [attended] --- park(), idle --> [not attended]                       [arrived] -- next round --> [attended]
///
/// Closing uses the same pattern. A push marks its lane busy, then checks whether the mailbox is open. The device
/// thread sees that the mailbox is closed, fences, and waits until no lane is busy. After that, every accepted closure
/// is in its lane and can be run (L2).
template <class Platform>
class BasicMailbox {
  template <class T>
  using atomic = typename Platform::template atomic<T>;
  using Pool = typename Platform::BlockPool;

 public:
  using Lane = cox::Lane<Platform>;
  using Item = typename Lane::Item;

  /// `capacity`: the largest number of queued closures under the policies Block and Fail.
  explicit BasicMailbox(QueuePolicy policy = QueuePolicy::Grow, std::size_t capacity = 0) : credits_(policy, capacity) {
    LaneList<Platform>::reserve(attended_);
  }
  BasicMailbox(const BasicMailbox&) = delete;
  BasicMailbox& operator=(const BasicMailbox&) = delete;

  /// Discards the closures that are still queued. No other thread may use the mailbox any more.
  ~BasicMailbox() {
    quiesce();
    discard_ready([](Outcome) {});
    lanes_.destroy(pool_);
  }

  // ---- client threads ------------------------------------------------------------------------------------------

  /// Acquires a lane for the calling thread alone, until release_lane(). Lanes of ended threads are reused. Lock-free.
  [[nodiscard]] Lane& acquire_lane() { return lanes_.acquire(); }

  void release_lane(Lane& lane) noexcept {
    credits_.return_unused(std::exchange(lane.credits, 0));
    lane.on_loan = false;
    lanes_.release(lane);
  }

  // A push has three steps: begin it, build the task in place, commit it. The first and the last step use only the
  // operations of the task, so that their slow paths are compiled once and not for every closure type. A lane on loan
  // is released at the end of the push, on every path.

  /// The address at which an admitted task is to be built.
  struct Reservation {
    PushResult result;
    void* object;  // null if the push was refused
  };

  /// Begins to enqueue a task of `ops`. Unless it is refused, the caller builds the task at the returned address and
  /// calls commit(), or abandon() if the task cannot be built; between these calls it must not push to this lane. At
  /// capacity under the policy Block, `when_full` decides. Throws std::bad_alloc; then nothing was begun.
  [[nodiscard, gnu::noinline]] Reservation begin(Lane& lane, const TaskOps& ops, WhenFull when_full) {
    if (lane.credits == 0) {
      lane.credits = credits_.acquire(when_full, lanes_.size(), [this] { return closing(); });
      if (lane.credits == 0) {
        if (lane.on_loan) release_lane(lane);
        const State state = state_.load(std::memory_order_seq_cst);
        return {state == State::Open ? PushResult::Full : refusal(state), nullptr};
      }
    }
    if (const State state = enter(lane); state != State::Open) {
      if (lane.on_loan) release_lane(lane);
      return {refusal(state), nullptr};
    }
    try {
      return {PushResult::Queued, lane.prepare(ops, pool_)};
    } catch (...) {
      end_unbuilt(lane);
      throw;
    }
  }

  /// The fast path of begin(), in a few instructions. Returns null if the fast path is not possible; then nothing was
  /// begun.
  [[nodiscard, gnu::always_inline]] void* begin_fast(Lane& lane, const TaskOps& ops) noexcept {
    if (lane.credits == 0 || enter(lane) != State::Open) [[unlikely]]
      return nullptr;
    void* const object = lane.prepare_fast(ops);
    if (object == nullptr) [[unlikely]]
      leave(lane);
    return object;
  }

  /// Enqueues the task that was built, after everything that any thread pushed before (L1). Wakes the device
  /// thread if it sleeps: see arrive().
  [[gnu::always_inline]] PushResult commit(Lane& lane, const TaskOps& ops, std::uint64_t stream) noexcept {
    lane.publish(ops, stream, arrivals_.load(std::memory_order_relaxed) == sole_mark(lane));
    --lane.credits;
    Platform::light_barrier();  // pairs with park(): we see the lane unattended or it sees the task
    if (lane.attended.load(std::memory_order_relaxed) == 0 || lane.on_loan) [[unlikely]]
      return end_push(lane);
    leave(lane);
    return PushResult::Queued;
  }

  /// Cancels begin(): no task was built at `object`, and none is queued.
  void abandon(Lane& lane, const TaskOps& ops, void* object) noexcept {
    lane.abandon(ops, object, pool_);
    end_unbuilt(lane);
  }

  /// All three steps, for the task that `make()` returns. If the push is refused, `make` is not called. Throws what
  /// `make` throws and std::bad_alloc; then nothing was queued.
  template <TaskMaker Make>
  PushResult push(Lane& lane, Make&& make, std::uint64_t stream, WhenFull when_full = WhenFull::Block) {
    const TaskOps& ops = task_ops<std::invoke_result_t<Make&>>;
    void* object = begin_fast(lane, ops);
    if (object == nullptr) [[unlikely]] {
      const Reservation reservation = begin(lane, ops, when_full);
      if (reservation.object == nullptr) return reservation.result;
      object = reservation.object;
    }
    build_task(object, make, [&] { abandon(lane, ops, object); });
    return commit(lane, ops, stream);
  }
  /// Pushes `task` by moving it. If the push is refused, `task` is unchanged.
  template <Task T>
  PushResult push(Lane& lane, T&& task, std::uint64_t stream, WhenFull when_full = WhenFull::Block) {
    return push(lane, moving(task), stream, when_full);
  }

  /// The pool for tasks that are boxed on the device thread outside of a lane.
  [[nodiscard]] Pool& pool() noexcept { return pool_; }

  /// Refuses every push from now on. The device thread runs what was accepted. Any thread, idempotent.
  void close() noexcept {
    State expected = State::Open;
    state_.compare_exchange_strong(expected, State::Closing, std::memory_order_seq_cst);
    credits_.wake_waiters();
    wake();
  }

  /// Blocks until a push may find room, the mailbox is closed, or `deadline` has passed.
  void wait_for_space(std::chrono::steady_clock::time_point deadline) noexcept {
    credits_.wait(deadline, [this] { return closing(); });
  }

  /// In a forked child: every push is refused; no other function may be called.
  void mark_forked() noexcept { state_.store(State::Forked, std::memory_order_seq_cst); }

  /// Number of tasks ever accepted. Exact when the clients are not pushing.
  [[nodiscard]] std::uint64_t accepted() const noexcept {
    std::uint64_t sum = 0;
    for (const Lane* lane = lanes_.newest(); lane != nullptr; lane = lane->next) sum += lane->pushed();
    return sum;
  }

  /// Bytes of lanes and blocks, both those in use and those kept for reuse.
  [[nodiscard]] std::size_t bytes() const noexcept { return pool_.bytes() + lanes_.size() * sizeof(Lane); }

  // ---- the device thread ---------------------------------------------------------------------------------------

  /// Runs, in order, the items pushed before this call, and perhaps more. `run(const Item&)` must run or discard the
  /// item by its ops. If `run` returns false, the mailbox is not touched any more. Returns the number of items.
  template <class Run>
  std::size_t run_ready(Run&& run) {
    Tally tally(*this);
    if (attended_.size() == 1 && !run_sole(*attended_.front().lane, run, tally)) return tally.count;
    const std::uint64_t before = Lane::stamp_at(Platform::now_fenced());  // T; the lanes are read after it
    attend_to_arrivals();
    bool idle = false;
    std::uint64_t newest = 0;
    for (Attended& entry : attended_) {
      entry.stamp = entry.lane->front_stamp(pool_);
      entry.idle_rounds = entry.stamp == 0 ? entry.idle_rounds + 1 : 0;
      idle = idle || entry.idle_rounds >= Platform::idle_rounds;
      newest = std::max(newest, entry.stamp);
    }
    // A stamp in the future means that the clock was set back. From the next round on, T is read from the counter (L3).
    if (newest > before && newest - before > Lane::stamp_at(Platform::clock_tolerance)) [[unlikely]]
      Platform::distrust_clock();
    for (;;) {
      const Choice choice = choose(before);
      if (choice.first == nullptr) break;
      Lane& lane = *choice.first->lane;
      std::uint64_t stamp = choice.first->stamp;
      do {  // all items of this lane that are older than the front of every other lane
        if (!run_front(lane, run, tally)) return tally.count;
        stamp = lane.front_stamp(pool_);
      } while (stamp != 0 && stamp < choice.limit);
      choice.first->stamp = stamp;
    }
    if (idle && attended_.size() > 1) {
      stop_attending([](const Attended& entry) { return entry.idle_rounds >= Platform::idle_rounds; });
    }
    return tally.count;
  }

  /// Blocks until there may be work. No push is missed: either this function sees it, or the push sees `attended`
  /// cleared and wakes the thread (L3). Returns whether the thread slept.
  bool park() {
    Platform::check_clock();
    end_privilege();
    parked_.store(1, std::memory_order_relaxed);
    pool_.trim();
    stop_attending([](const Attended&) { return true; });
    const bool work = !attended_.empty() || arrivals_.load(std::memory_order_acquire) != 0 || closing();
    bool slept = false;
    while (!work && parked_.load(std::memory_order_acquire) == 1) {
      Platform::park(parked_, 1);
      slept = true;
    }
    parked_.store(0, std::memory_order_relaxed);
    return slept;
  }

  [[nodiscard]] bool closing() const noexcept { return state_.load(std::memory_order_seq_cst) != State::Open; }

  /// Called after closing() became true. Waits until no push is in progress, then attends to every lane. From then on
  /// run_ready() and discard_ready() find all remaining items; no more are added.
  void quiesce() noexcept {
    state_.store(State::Closing, std::memory_order_seq_cst);
    Platform::heavy_barrier();  // pairs with the light_barrier of enter()
    attended_.clear();
    Lane* const newest = lanes_.newest();
    if (newest != nullptr) lanes_.make_room(attended_, newest->number);
    for (Lane* lane = newest; lane != nullptr; lane = lane->next) {
      while (lane->busy.load(std::memory_order_acquire) != 0) Platform::pause();  // acquire: pairs with leave()
      lane->attended.store(1, std::memory_order_relaxed);
      lane->in_round = true;
      attended_.push_back({0, lane});
    }
    arrivals_.store(0, std::memory_order_relaxed);  // a push that adds its lane here is busy until it has done so
  }

  /// Whether no item is left; after quiesce().
  [[nodiscard]] bool empty() noexcept {
    for (const Attended& entry : attended_) {
      if (entry.lane->front_stamp(pool_) != 0) return false;
    }
    return true;
  }

  /// Destroys the queued items unrun, completes the callers that wait for them (L2), and calls
  /// `account(Outcome::Cancelled)` for each. After quiesce().
  template <class Account>
  void discard_ready(Account&& account) noexcept {
    for (const Attended& entry : attended_) {
      while (entry.lane->front_stamp(pool_) != 0) {
        const Item item = entry.lane->pop();
        item.ops->discard(item.object, CallError::Kind::Closed);
        account(Outcome::Cancelled);
      }
    }
  }

  /// Called by a thread that takes over from a device thread stuck in a task. If that thread returns from the task, it
  /// finds the memory of the task unchanged, and does not return any memory to the pool.
  void prepare_take_over() noexcept {
    pool_.seal();
    for (Lane* lane = lanes_.newest(); lane != nullptr; lane = lane->next) lane->strand_segment();
  }

 private:
  enum class State : std::uint32_t { Open, Closing, Forked };

  using Attended = typename Lane::Attended;

  struct Choice {
    Attended* first;      // the lane with the oldest front, or nullptr
    std::uint64_t limit;  // run the items of this lane that are stamped before it
  };

  // -- a push: from enter() to leave() its lane is busy

  [[gnu::always_inline]] State enter(Lane& lane) noexcept {
    lane.busy.store(1, std::memory_order_relaxed);
    Platform::light_barrier();  // pairs with quiesce(): we see the closed state or it sees us busy
    const State state = state_.load(std::memory_order_acquire);
    if (state != State::Open) [[unlikely]]
      leave(lane);
    return state;
  }

  static void leave(Lane& lane) noexcept { lane.busy.store(0, std::memory_order_release); }  // pairs with quiesce()

  // Ends a push that has begun, but whose task could not be built. The thread may never push again while it lives, so
  // its credits are returned (L3, L7).
  void end_unbuilt(Lane& lane) noexcept {
    leave(lane);
    if (lane.on_loan) {
      release_lane(lane);
    } else {
      credits_.return_unused(std::exchange(lane.credits, 0));
    }
  }

  // Completes a push that is published, on the slow path. The device thread sleeps only while no lane is attended, so a
  // push to an attended lane need not wake it.
  [[gnu::noinline]] PushResult end_push(Lane& lane) noexcept {
    PushResult result = PushResult::Queued;
    if (lane.attended.load(std::memory_order_relaxed) == 0) result = arrive(lane);
    leave(lane);
    if (lane.on_loan) release_lane(lane);
    return result;
  }

  static PushResult refusal(State state) noexcept {
    return state == State::Forked ? PushResult::Forked : PushResult::Closed;
  }

  // -- order

  // Counts the items that a round has run, and returns their credits.
  struct Tally {
    explicit Tally(BasicMailbox& owner) noexcept : mailbox(owner) {}
    ~Tally() {
      if (uncredited != 0) mailbox.credits_.return_used(uncredited);
    }
    Tally(const Tally&) = delete;
    Tally& operator=(const Tally&) = delete;

    void add() noexcept {
      ++count;
      if (mailbox.credits_.limited() && ++uncredited >= mailbox.credits_.chunk())
        mailbox.credits_.return_used(std::exchange(uncredited, 0));
    }

    BasicMailbox& mailbox;
    std::size_t count = 0;
    std::size_t uncredited = 0;
  };

  template <class Run>
  bool run_front(Lane& lane, Run& run, Tally& tally) {
    const Item item = lane.pop();
    if (!run(item)) {
      tally.uncredited = 0;  // the mailbox was taken over: do not touch it
      return false;
    }
    tally.add();
    return true;
  }

  // Runs the items of a lane that has the sole privilege, without reading the clock. If an item of another lane had to
  // run before an item seen here, its push would have ended the privilege before the item seen here was published.
  // Returns false if there is nothing more to do in this round.
  template <class Run>
  bool run_sole(Lane& lane, Run& run, Tally& tally) {
    while (lane.front_stamp(pool_) != 0) {
      // After the acquire load of the item's stamp: see the comment above run_sole().
      if (arrivals_.load(std::memory_order_relaxed) != sole_mark(lane)) return true;
      if (!run_front(lane, run, tally)) return false;
    }
    return arrivals_.load(std::memory_order_relaxed) != sole_mark(lane);
  }

  // The value of arrivals_ while `lane` is the only attended lane. Lanes are aligned, so bit 0 distinguishes it from a
  // list.
  static std::uintptr_t sole_mark(const Lane& lane) noexcept { return reinterpret_cast<std::uintptr_t>(&lane) | 1U; }
  static bool is_mark(std::uintptr_t word) noexcept { return (word & 1U) != 0; }

  void attend_to_arrivals() noexcept {
    std::uintptr_t word = arrivals_.load(std::memory_order_relaxed);
    if (is_mark(word)) return;
    if (word == 0) {
      if (attended_.size() == 1 && Platform::clock_runs()) {
        arrivals_.compare_exchange_strong(word, sole_mark(*attended_.front().lane), std::memory_order_relaxed);
      }
      return;
    }
    word = arrivals_.exchange(0, std::memory_order_acquire);  // pairs with arrive()
    for (auto* next = reinterpret_cast<Lane*>(word); next != nullptr;) {
      Lane* const lane = std::exchange(next, next->next_arrival);
      lane->arrived.store(0, std::memory_order_release);  // from here on next_arrival belongs to the lane's owner again
      lane->attended.store(1, std::memory_order_relaxed);
      if (!std::exchange(lane->in_round, true)) {
        lanes_.make_room(attended_, attended_.size() + 1);
        attended_.push_back({0, lane});
      }
    }
  }

  // Stops attending to the lanes for which `done(const Attended&)` is true, unless they contain items.
  template <class Done>
  void stop_attending(Done&& done) noexcept {
    for (const Attended& entry : attended_) {
      if (done(entry)) entry.lane->attended.store(0, std::memory_order_relaxed);
    }
    Platform::heavy_barrier();  // pairs with the light_barrier of commit(), and the seq_cst of arrive() and close()
    std::erase_if(attended_, [&](const Attended& entry) {
      if (!done(entry)) return false;
      const bool idle = entry.lane->front_stamp(pool_) == 0;
      if (idle) {
        entry.lane->in_round = false;
      } else {  // keep it, even if its owner is adding it to the arrivals: its tasks may precede others' (L1)
        entry.lane->attended.store(1, std::memory_order_relaxed);
      }
      return idle;
    });
  }

  void end_privilege() noexcept {
    std::uintptr_t word = arrivals_.load(std::memory_order_relaxed);
    if (is_mark(word)) arrivals_.compare_exchange_strong(word, 0, std::memory_order_relaxed);
  }

  Choice choose(std::uint64_t before) noexcept {
    Choice choice{nullptr, before};
    std::uint64_t oldest = before;
    for (Attended& entry : attended_) {
      if (entry.stamp == 0 || entry.stamp >= choice.limit) continue;
      if (entry.stamp < oldest) {
        choice.limit = oldest;
        oldest = entry.stamp;
        choice.first = &entry;
      } else {
        choice.limit = entry.stamp;
      }
    }
    return choice;
  }

  // -- waking

  // Adds the lane to the arrivals, for the device thread to attend to it, and wakes that thread if it sleeps.
  PushResult arrive(Lane& lane) noexcept {
    if (lane.arrived.exchange(1, std::memory_order_seq_cst) == 0) {
      std::uintptr_t word = arrivals_.load(std::memory_order_relaxed);
      do {
        lane.next_arrival = is_mark(word) ? nullptr : reinterpret_cast<Lane*>(word);
      } while (!arrivals_.compare_exchange_weak(word, reinterpret_cast<std::uintptr_t>(&lane),
                                                std::memory_order_seq_cst, std::memory_order_relaxed));
    }
    return wake() ? PushResult::Woke : PushResult::Queued;
  }

  bool wake() noexcept {
    if (parked_.load(std::memory_order_seq_cst) == 0 || parked_.exchange(0, std::memory_order_seq_cst) == 0)
      return false;
    Platform::wake(parked_);
    return true;
  }

  Pool pool_;
  Credits<Platform> credits_;

  // Read by every push, or when a lane acquires credits. Written once, or when a lane is made.
  alignas(cache_line) atomic<State> state_{State::Open};
  LaneList<Platform> lanes_;
  // Read by every push. Rarely written: by clients that find their lane unattended, and by the device thread when it
  // parks.
  atomic<std::uintptr_t> arrivals_{0};
  atomic<std::uint32_t> parked_{0};  // 1: the device thread sleeps or is about to sleep

  // Owned by the device thread.
  alignas(cache_line) std::vector<Attended> attended_;
};

using Mailbox = BasicMailbox<SystemPlatform>;

}  // namespace cox
