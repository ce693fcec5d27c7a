// Who goes on at each scheduling point.
#include <coxswain/tests/model/engine.hpp>

#include <algorithm>
#include <utility>

namespace cox::model {

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

}  // namespace cox::model
