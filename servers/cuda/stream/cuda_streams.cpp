#include <coxswain/servers/cuda/stream/cuda_streams.hpp>

#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/runtime/async/device_event_set.hpp>
#include <coxswain/runtime/error/launch_error.hpp>
#include <coxswain/runtime/error/log.hpp>
#include <coxswain/runtime/error/server_error.hpp>
#include <coxswain/runtime/handle/recycled_memory.hpp>
#include <coxswain/runtime/launch/launch_limits.hpp>
#include <coxswain/servers/cuda/driver/cuda_try.hpp>
#include <coxswain/servers/cuda/driver/fault_report.hpp>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <string>
#include <utility>

namespace cox::detail {
namespace {

/// A piece that was issued after a collective and depends on its result.
class LoggedPiece final : public LoggedOperation {
 public:
  LoggedPiece(CudaStream& stream, const OperationName& name, std::uint64_t sequence)
      : stream_(stream.shared_from_this()), reports_(stream.reports), name_(name), sequence_(sequence) {}

 private:
  [[nodiscard]] std::exception_ptr record_refusal(const std::exception_ptr& refusal) noexcept override {
    std::exception_ptr error = CudaStreams::refused_piece(name_, stream_->location(), refusal);
    stream_->record_failure_at(sequence_, error, reports_);
    return error;
  }
  void report_refusal(const std::exception_ptr& error) noexcept override { stream_->report_failure(error); }

  const std::shared_ptr<CudaStream> stream_;
  const std::shared_ptr<FailureReports> reports_;
  const OperationName name_;
  const std::uint64_t sequence_;
};

}  // namespace

std::shared_ptr<LoggedOperation> CudaStreams::logged_piece(CudaStream& stream, const OperationName& name,
                                                           std::uint64_t sequence) {
  return make_recycled<LoggedPiece>(stream, name, sequence != 0 ? sequence : stream.next_sequence());
}

std::exception_ptr CudaStreams::refused_piece(const OperationName& name, const Location& location,
                                              const std::exception_ptr& refusal) noexcept {
  if (name.kernel == nullptr) return refusal;
  try {
    return std::make_exception_ptr(LaunchError(
        LaunchError::Kind::Io, launch_name(name.kernel, location) + " was not run: " + describe_cause(refusal),
        name.site, refusal));
  } catch (...) {
    return std::current_exception();  // no memory for the error
  }
}

void CudaStreams::open(CUfunction empty_kernel) {
  for (std::size_t i = 0; i < max_dedicated; ++i) {
    make_native(StreamPriority::High).is_dedicated = true;
    ++dedicated_;
  }
  for (std::size_t i = 0; i < options_.streams; ++i) make_native(StreamPriority::Normal);
  for (std::size_t i = 0; i < std::min(max_urgent, options_.streams); ++i) make_native(StreamPriority::High);
  for (std::size_t i = 0; i < foreign_graphs; ++i) make_foreign();
  if (empty_kernel == nullptr || options_.launches_at_a_time == 1 || gpu_faulted()) return;
  try {
    std::map<int, std::shared_ptr<const LaunchGraphs>> graphs;
    std::size_t with_graphs = 0;
    for (const auto& native : natives_) {
      if (native->priority() == StreamPriority::Normal && !native->is_foreign() && ++with_graphs > max_with_graphs)
        continue;
      auto& of_priority = graphs[native->native_priority()];
      if (of_priority == nullptr)
        of_priority = std::make_shared<LaunchGraphs>(driver(), empty_kernel, native->native_priority());
      native->make_graphs(of_priority);
    }
  } catch (const Error& error) {
    if (gpu_faulted()) return;  // the first call reports it
    log::write(LogSubsystem::Cuda, LogLevel::Warn, [&] {
      return device_.to_string() + " launches kernels of some streams one by one, which takes longer: " + error.what();
    });
  }
}

CudaStream& CudaStreams::find_or_make(StreamId id) {
  auto found = streams_.find(id);
  if (found == streams_.end()) {
    if (streams_.size() >= sweep_at_) forget_idle();
    found = streams_.try_emplace(id).first;
    try {
      found->second = make_stream(id, native_for_new(id.priority()));
    } catch (...) {
      streams_.erase(found);
      throw;
    }
  }
  last_ = found->second.get();
  return *last_;
}

// The driver stream of that priority with the fewest users. Without open(): a new one if all have users and the limit
// allows one more, or if there is none.
NativeStream& CudaStreams::native_for_new(StreamPriority priority) {
  NativeStream* least = nullptr;
  for (const auto& native : natives_) {
    if (native->is_dedicated || native->priority() != priority) continue;
    if (least == nullptr || native->users < least->users) least = native.get();
  }
  if (least != nullptr && (least->users == 0 || natives_.size() - dedicated_ >= options_.streams)) return *least;
  return make_native(priority);
}

NativeStream& CudaStreams::make_native(StreamPriority priority) {
  natives_.push_back(std::make_unique<NativeStream>(priority, options_.launches_at_a_time));
  native_count_.store(natives_.size(), std::memory_order_release);  // pairs with the acquire in add_suspects
  return *natives_.back();
}

void CudaStreams::make_foreign() {
  natives_.push_back(std::make_unique<NativeStream>(options_.launches_at_a_time));  // has room
  native_count_.store(natives_.size(), std::memory_order_release);  // pairs with the acquire in add_suspects
  natives_.back()->is_dedicated = true;
  ++dedicated_;
}

std::shared_ptr<CudaStream> CudaStreams::create_dedicated_stream() {
  const auto left = std::ranges::find_if(  // left over by a call that failed in make_stream()
      natives_, [](const auto& native) { return native->is_dedicated && !native->is_foreign() && native->users == 0; });
  NativeStream& native = left != natives_.end() ? **left : make_native(StreamPriority::High);
  if (!std::exchange(native.is_dedicated, true)) ++dedicated_;
  return make_stream(StreamId::allocate(), native);
}

StreamId CudaStreams::use_foreign(CUstream foreign, std::source_location site) {
  for (const auto& [id, stream] : streams_) {
    NativeStream& native = stream->queue().native();
    if (!native.is_foreign() || native.native() != foreign) continue;
    ++native.uses;
    return id;
  }
  auto place =
      std::ranges::find_if(natives_, [](const auto& native) { return native->is_foreign() && native->users == 0; });
  if (place == natives_.end()) {
    const auto used = std::ranges::count_if(natives_, [](const auto& native) { return native->is_foreign(); });
    if (used >= static_cast<std::ptrdiff_t>(max_foreign))
      throw ServerError(ServerError::Kind::Validation,
                        device_.to_string() + " uses as many streams of other owners as it can, " +
                            std::to_string(max_foreign) + ": end the use of one",
                        site);
    make_foreign();
    place = std::prev(natives_.end());
  }
  const StreamId id = StreamId::allocate();
  const auto entry = streams_.try_emplace(id).first;
  try {
    entry->second = make_stream(id, **place);
  } catch (...) {
    streams_.erase(entry);
    throw;
  }
  (*place)->set_foreign(foreign);
  (*place)->uses = 1;
  return id;
}

void CudaStreams::end_use(StreamId id, std::source_location site) {
  poll();
  const auto found = streams_.find(id);
  if (found == streams_.end() || !found->second->queue().native().is_foreign())
    throw ServerError(ServerError::Kind::Validation,
                      Location{device_, id}.to_string() + " was not returned by use_stream(), or its use has ended",
                      site);
  CudaStream& stream = *found->second;
  NativeStream& native = stream.queue().native();
  if (native.uses > 1) {
    --native.uses;
    return;
  }
  if (!stream.can_end(*this))
    throw ServerError(
        ServerError::Kind::Validation,
        "the use of " + stream.location().to_string() + " cannot end: its work, a capture or a profile has not ended",
        site);
  std::erase_if(ended_, [](const auto& ended) { return ended.use_count() == 1 && ended->errors()->empty(); });
  ended_.push_back(found->second);  // operations that have ended may still refer to it, and report a failure late
  if (last_ == &stream) last_ = nullptr;
  remove(stream);
  native.set_foreign(nullptr);
  native.uses = 0;
  streams_.erase(found);
}

void CudaStreams::remove(CudaStream& stream) noexcept {
  const StreamSlot slot = stream.slot();
  queue_of(slot) = nullptr;
  release_slot(slot);
  NativeStream& native = stream.queue().native();
  if (--native.users != 0) return;
  native.poll();  // the last time: its completed operations are no suspects of a later GPU fault
  std::erase(used_, &native);
}

std::shared_ptr<CudaStream> CudaStreams::make_stream(StreamId id, NativeStream& native) {
  const StreamSlot slot = acquire_slot();
  try {
    auto made = std::make_shared<CudaStream>(Location{device_, id}, slot, timeline(slot), native, poison_log_);
    queue_of(slot) = &made->queue();
    timeline(slot).set_in_order(true);
    if (++native.users == 1) used_.push_back(&native);  // there is room for all
    return made;
  } catch (...) {
    release_slot(slot);
    throw;
  }
}

StreamSlot CudaStreams::acquire_slot() {
  if (free_slots_.empty()) {
    free_slots_.reserve(timelines_.size() + 1);
    queues_.reserve(timelines_.size() + 1);
    timelines_.push_back(std::make_unique<CudaTimeline>());  // the last that may throw: one queue for each timeline
    queues_.resize(timelines_.size());
    free_slots_.push_back(static_cast<StreamSlot>(timelines_.size() - 1));
  }
  const StreamSlot slot = free_slots_.back();
  free_slots_.pop_back();
  timeline(slot).set_in_order(false);
  return slot;
}

// The streams of client threads that have ended stay here until they are removed by this.
void CudaStreams::forget_idle() noexcept {
  poll();
  last_ = nullptr;
  for (const auto& [id, stream] : streams_) {
    static_cast<void>(stream->transfers(*this));  // the call forgets completed transfers
    static_cast<void>(stream->pending_waits(*this));
  }
  std::erase_if(streams_, [this](const auto& entry) {
    if (!entry.second->idle() || entry.second.use_count() != 1 || entry.second->queue().native().is_foreign())
      return false;
    remove(*entry.second);
    return true;
  });
  sweep_at_ = std::max<std::size_t>(1024, 2 * streams_.size());  // amortised cost of sweeping: O(1) per stream
}

// Launches that `native` still has in its batch are given to the driver first. What is called then may poll other
// streams, which drops their marks.
void CudaStreams::wait_for(NativeStream& native, const StreamPosition& wait) {
  if (const StreamQueue* const other = queue_of(wait.stream); other != nullptr && &other->native() == &native) return;
  if (native.waited_for(wait.stream) >= wait.position) return;
  CudaTimeline& of = timeline(wait.stream);
  of.collect_known();
  if (of.completed() >= wait.position) return;
  const CUstream waiting = native.native();
  const std::uint64_t covered =
      for_each_event(wait, [waiting](const std::shared_ptr<CudaEvent>& event) { event->enqueue_wait(waiting); });
  native.waited_for(wait.stream) = covered;
}

void CudaStreams::add_events(const StreamPositions& positions, std::vector<std::shared_ptr<CudaEvent>>& events) {
  for (const StreamPosition& position : positions)
    for_each_event(position, [&](const std::shared_ptr<CudaEvent>& event) { events.push_back(event); });
}

StreamPosition CudaStreams::defer(CudaStream& stream, const StreamPositions& waits, const OperationName& name,
                                  CudaIssue issue, std::shared_ptr<CudaEvent> ready, PieceKind kind,
                                  OperationMemory memory, LaunchKind launch) {
  StreamQueue& queue = stream.queue();
  if (!queue.is_listed) {
    pending_queues_.push_back(&queue);
    queue.is_listed = true;
  }
  queue.pending.push_back({waits, std::move(ready), std::move(issue), name, stream.shared_from_this(),
                           stream.next_sequence(), kind, std::move(memory), launch});
  const StreamPosition position{queue.slot(), queue.timeline().submit()};
  if (queue.pending.size() == 1) static_cast<void>(advance());  // else the first piece has arranged a notification
  return position;
}

// Whether the first pending piece can be issued now. If not, and it waits for work on the device, arranges that the
// device thread checks again.
bool CudaStreams::can_issue(StreamQueue& queue) noexcept {
  try {
    return try_to_go_on(queue);
  } catch (...) {  // the next poll tries again
    posts_->notify();
    return false;
  }
}

bool CudaStreams::try_to_go_on(StreamQueue& queue) {
  const StreamQueue::Pending& first = queue.pending.front();
  if (!issued(first.waits)) return false;  // advance() is called after they are issued
  if (first.has_failed && !completed(first.waits)) {
    poll();
    if (completed(first.waits)) return true;
    std::vector<std::shared_ptr<CudaEvent>> left;
    add_events(first.waits, left);
    notify_when(queue, left.empty() ? nullptr : left.front());
    return false;
  }
  if (first.ready != nullptr && !first.ready->reached()) {
    notify_when(queue, first.ready);
    return false;
  }
  NativeStream& native = queue.native();
  if (has_room(native)) return true;
  const CudaTimeline& timeline = native.timeline();
  const std::uint64_t enough = timeline.completed() + std::max<std::uint64_t>(timeline.in_flight() / 2, 1);
  notify_when(queue, native.event_after(enough, *events_));
  return false;
}

void CudaStreams::notify_when(StreamQueue& queue, const std::shared_ptr<CudaEvent>& event) {
  if (event == nullptr) return posts_->notify();
  if (queue.awaited == event) return;
  event->notify([posts = posts_] { posts->notify(); });
  queue.awaited = event;
}

// Tells the driver to wait for what the first pending piece depends on. If that fails, the piece fails and issues
// nothing. It keeps its position until everything it depends on is complete, since later work uses its memory after it.
bool CudaStreams::wait_for_first(StreamQueue& queue) noexcept {
  StreamQueue::Pending& first = queue.pending.front();
  if (first.kind != PieceKind::Work || first.has_failed) return true;
  try {
    wait_for(queue.native(), first.waits);
    return true;
  } catch (...) {
    first.has_failed = true;
    first.kind = PieceKind::Notice;
    first.owner->fail_after_submit(first.sequence, std::current_exception());
    poison_log_->set_failed(first.memory.uses(), std::current_exception(), MemoryFailure::Contents::Unchanged);
    const CudaIssue dropped = std::move(first.issue);  // after set_failed(): its destructor may check for the error
    return false;
  }
}

bool CudaStreams::issue_pending(StreamQueue& queue) {
  bool any = false;
  while (!queue.pending.empty() && can_issue(queue)) {
    if (gpu_faulted()) break;  // perhaps found by the piece before: abandon() is called next
    if (!wait_for_first(queue)) continue;
    StreamQueue::Pending first = std::move(queue.pending.front());
    queue.pending.pop_front();
    any = true;
    begin_issue(queue, first.kind, first.name, *first.owner);
    if (first.has_failed) continue;
    try {
      issue_checked(*first.owner, first.memory.uses(), first.name, first.launch, first.issue, first.sequence);
      note_launches(queue.native());
      mark_periodically(queue);
    } catch (...) {
      first.owner->fail_after_submit(first.sequence, std::current_exception());
    }
  }
  return any;
}

void CudaStreams::when_complete(const StreamPositions& positions, UniqueFunction<void()> then) {
  std::list<Awaiting> one;
  one.push_back({positions, std::move(then)});
  if (is_complete(one.front())) return one.front().then();
  awaiting_.splice(awaiting_.end(), one);
}

void CudaStreams::when_idle(UniqueFunction<void()> then) {
  std::vector<std::shared_ptr<CudaEvent>> last;
  if (!gpu_faulted())
    for (const auto& native : natives_)
      if (native->timeline().completed() < native->timeline().issued())
        last.push_back(native->event_after_all(*events_));
  if (last.empty()) return then();
  DeviceEventSet::make(std::move(last))->notify(std::move(then));
}

void CudaStreams::when_issued(const StreamPositions& positions, UniqueFunction<void()> then) {
  if (issued(positions)) return then();
  awaiting_.push_back({positions, std::move(then)});
  awaiting_.back().until_issued = true;
}

// If not, the device thread is notified to poll again; for positions not yet issued, advance() is called after they
// are.
bool CudaStreams::is_complete(Awaiting& awaiting) noexcept {
  if (gpu_faulted()) return true;
  if (!issued(awaiting.positions)) return false;
  if (awaiting.until_issued) return true;
  try {
    if (!awaiting.has_events) {
      awaiting.events.clear();
      add_events(awaiting.positions, awaiting.events);
      for (const auto& event : awaiting.events) event->notify([posts = posts_] { posts->notify(); });
      awaiting.has_events = true;
    }
  } catch (...) {  // the next poll tries again
    posts_->notify();
    return false;
  }
  return std::ranges::all_of(awaiting.events, [](const auto& event) { return event->reached(); });
}

// A callback may complete what another entry waits for, add an entry, or call this again: then the inner call goes on
// with the entries that are left.
bool CudaStreams::call_awaiting() noexcept {
  bool any = false;
  for (;;) {
    for (auto next = awaiting_.begin(); next != awaiting_.end();) {
      const auto entry = next++;
      if (is_complete(*entry)) to_call_.splice(to_call_.end(), awaiting_, entry);
    }
    if (to_call_.empty()) return any;
    any = true;
    while (!to_call_.empty()) {
      std::list<Awaiting> one;
      one.splice(one.end(), to_call_, to_call_.begin());
      one.front().then();
    }
  }
}

bool CudaStreams::flush_launches() noexcept {
  const bool any = !with_launches_.empty();
  launches_kept_ = 0;
  while (!with_launches_.empty()) {  // a launch callback may add another launch
    NativeStream& native = *with_launches_.back();
    with_launches_.pop_back();
    native.is_listed = false;
    native.flush();
  }
  return any;
}

bool CudaStreams::advance() {
  bool issued = flush_launches();
  issued = call_awaiting() || issued;
  if (pending_queues_.empty()) return issued;
  for (bool any = true; any;) {  // issued work of one stream may unblock another
    any = false;
    for (std::size_t i = 0; i < pending_queues_.size(); ++i) any = issue_pending(*pending_queues_[i]) || any;
    any = flush_launches() || any;
    issued = issued || any;
  }
  std::erase_if(pending_queues_, [](StreamQueue* queue) {
    if (!queue->pending.empty()) return false;
    queue->is_listed = false;
    queue->awaited = nullptr;
    return true;
  });
  // Queues that share a driver stream take turns at being first, since each may use up all its room.
  if (pending_queues_.size() > 1) std::ranges::rotate(pending_queues_, pending_queues_.begin() + 1);
  return issued;
}

void CudaStreams::poll() noexcept {
  for (NativeStream* const native : used_) native->poll();
  for (std::size_t slot = 0; slot < queues_.size(); ++slot) {
    StreamQueue* const queue = queues_[slot];
    if (queue == nullptr) {
      timelines_[slot]->poll();
      continue;
    }
    queue->poll();
    const CudaTimeline& timeline = queue->timeline();
    if (timeline.last_mark() == timeline.issued() || timeline.last_mark() != timeline.completed()) continue;
    try_to_mark(*queue);
  }
}

void CudaStreams::synchronize() noexcept {
  for (const auto& native : natives_) {
    if (native->is_foreign()) {
      native->wait_for_own(*events_);
    } else {
      COX_CUDA_CHECK(stream_synchronize(native->native()));
    }
  }
  poll();
}

// The driver may still take work, for instance of a GPU that the fault has not reached. So nothing that writes memory
// may be given to it: a launch, to which no one listens, is dropped; an upload or a graph refuses by itself.
void CudaStreams::abandon() noexcept {
  for (std::size_t i = 0; i < pending_queues_.size(); ++i) {
    StreamQueue& queue = *pending_queues_[i];
    while (!queue.pending.empty()) {
      StreamQueue::Pending first = std::move(queue.pending.front());
      queue.pending.pop_front();
      queue.timeline().issue();
      if (first.has_failed || first.launch.is_launch) continue;
      try {
        first.issue(queue.target());
        note_launches(queue.native());
      } catch (...) {  // the GPU fault, which has been reported
      }
    }
  }
  flush_launches();
  call_awaiting();
}

void CudaStreams::add_suspects(std::vector<GpuFault::Suspect>& suspects) const {
  constexpr std::size_t most = mark_interval;  // per stream: the maximum number of pieces between two marks
  const std::size_t count = native_count_.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < count; ++i) {
    natives_[i]->for_each_suspect(most, [&](OperationHistory::Operation& operation) {
      suspects.push_back(
          {std::move(operation.name), Location{device_, operation.stream}.to_string(), std::move(operation.site)});
    });
  }
}

}  // namespace cox::detail
