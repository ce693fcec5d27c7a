#include <coxswain/servers/cuda/detail/cuda_streams.hpp>

#include <coxswain/servers/cuda/detail/cuda_try.hpp>

#include <algorithm>

namespace cox::detail {

CudaStream& CudaStreams::find_or_make(StreamId id) {
  auto found = streams_.find(id);
  if (found == streams_.end()) {
    if (streams_.size() >= sweep_at_) forget_idle();
    auto made = std::make_shared<CudaStream>(Place{device_, id}, native_for_new());
    found = streams_.emplace(id, std::move(made)).first;
  }
  last_ = found->second.get();
  return *last_;
}

// The one that the fewest share, unless there may be more of them.
NativeStream& CudaStreams::native_for_new() {
  NativeStream* least = nullptr;
  for (const auto& native : natives_)
    if (!native->apart && (least == nullptr || native->users < least->users)) least = native.get();
  if (least != nullptr && (least->users == 0 || natives_.size() - apart_ >= options_.streams)) return *least;
  return make_native();
}

NativeStream& CudaStreams::make_native() {
  const StreamSlot slot = take_slot();
  try {
    natives_.push_back(std::make_unique<NativeStream>(slot, timeline(slot)));
  } catch (...) {
    give_back(slot);
    throw;
  }
  native_count_.store(natives_.size(), std::memory_order_release);  // pairs with the acquire in add_suspects
  return *natives_.back();
}

std::shared_ptr<CudaStream> CudaStreams::make_apart() {
  NativeStream& native = make_native();
  native.apart = true;
  ++apart_;
  return std::make_shared<CudaStream>(Place{device_, StreamId::allocate()}, native);
}

StreamSlot CudaStreams::take_slot() {
  if (free_slots_.empty()) {
    free_slots_.reserve(timelines_.size() + 1);
    timelines_.push_back(std::make_unique<CudaTimeline>());
    free_slots_.push_back(static_cast<StreamSlot>(timelines_.size() - 1));
  }
  const StreamSlot slot = free_slots_.back();
  free_slots_.pop_back();
  return slot;
}

// A client thread that has ended leaves its stream behind.
void CudaStreams::forget_idle() noexcept {
  poll();
  last_ = nullptr;
  for (const auto& [id, stream] : streams_) static_cast<void>(stream->transfers(*this));
  std::erase_if(streams_, [](const auto& entry) { return entry.second->idle() && entry.second.use_count() == 1; });
  sweep_at_ = std::max<std::size_t>(1024, 2 * streams_.size());  // so that sweeping costs O(1) a stream
}

std::shared_ptr<CudaEvent> CudaStreams::event_of(const StreamPosition& position) {
  CudaTimeline& of = timeline(position.stream);
  if (of.completed() >= position.position) return nullptr;
  if (const CudaTimeline::Mark* const mark = of.covering(position.position)) return mark->event;
  const auto native =
      std::ranges::find(natives_, position.stream, [](const auto& candidate) { return candidate->slot(); });
  return (*native)->mark(*events_);
}

void CudaStreams::wait_for(NativeStream& native, const StreamPosition& wait) {
  if (wait.stream == native.slot()) return;
  std::uint64_t& waited = native.waited_for(wait.stream);
  if (waited >= wait.position) return;
  const std::shared_ptr<CudaEvent> event = event_of(wait);
  if (event == nullptr) return;
  COX_CUDA_TRY(stream_wait_event(native.native(), event->native(), CU_EVENT_WAIT_DEFAULT));
  const CudaTimeline::Mark* const mark = timeline(wait.stream).covering(wait.position);
  waited = mark != nullptr ? mark->position : wait.position;
}

StreamPosition CudaStreams::queue(CudaStream& on, const StreamPositions& waits, const OperationName& name,
                                  CudaIssue issue, std::shared_ptr<CudaEvent> ready) {
  NativeStream& native = on.native();
  native.pending.push_back({waits, std::move(ready), std::move(issue), on.shared_from_this(), on.next_sequence()});
  ++pending_;
  const StreamPosition position{native.slot(), native.timeline().submit()};
  native.history.note(position.position, name, on.place().stream);
  if (native.pending.size() == 1) static_cast<void>(advance());  // else the first has the doorbell rung
  return position;
}

// Whether the first pending piece can be issued. If it waits for the device, the doorbell will ring.
bool CudaStreams::can_go_on(NativeStream& native) {
  const NativeStream::Pending& first = native.pending.front();
  if (!issued(first.waits)) return false;  // who issues that calls advance()
  if (first.ready != nullptr && !first.ready->reached()) {
    ring_when(native, first.ready);
    return false;
  }
  if (has_room(native)) return true;
  CudaTimeline& timeline = native.timeline();
  ring_when(native,
            event_of({native.slot(), timeline.completed() + std::max<std::uint64_t>(timeline.in_flight() / 2, 1)}));
  return false;
}

void CudaStreams::ring_when(NativeStream& native, const std::shared_ptr<CudaEvent>& event) {
  if (event == nullptr) return doorbell_->ring();
  if (native.wake_up_is_due) return;
  event->notify([doorbell = doorbell_] { doorbell->ring(); });
  native.wake_up_is_due = true;
}

bool CudaStreams::issue_pending(NativeStream& native) {
  bool any = false;
  while (!native.pending.empty() && can_go_on(native)) {
    NativeStream::Pending first = std::move(native.pending.front());
    native.pending.pop_front();
    --pending_;
    any = true;
    native.timeline().issue();
    try {
      wait_for(native, first.waits);
      first.issue(native.target());
      mark_now_and_then(native);
    } catch (...) {
      first.owner->fail_late(first.sequence, std::current_exception());
    }
  }
  return any;
}

bool CudaStreams::advance() {
  bool issued = false;
  for (bool any = pending_ != 0; any;) {  // what one stream issues, another may have waited for
    any = false;
    for (const auto& native : natives_) any = issue_pending(*native) || any;
    issued = issued || any;
  }
  return issued;
}

void CudaStreams::poll() noexcept {
  for (const auto& timeline : timelines_) timeline->poll();  // also of slots that are no stream
  for (const auto& native : natives_) {
    native->poll();
    const CudaTimeline& timeline = native->timeline();
    if (timeline.last_mark() == timeline.issued() || timeline.last_mark() != timeline.completed()) continue;
    try {
      native->mark(*events_);
    } catch (...) {  // the next look tries again
    }
  }
}

void CudaStreams::abandon() noexcept {
  for (const auto& native : natives_) {
    while (!native->pending.empty()) {
      NativeStream::Pending first = std::move(native->pending.front());
      native->pending.pop_front();
      --pending_;
      native->timeline().issue();
      try {
        first.issue(native->target());
      } catch (...) {  // the fault, which everybody knows of
      }
    }
  }
}

void CudaStreams::add_suspects(std::vector<GpuFault::Suspect>& suspects) const {
  constexpr std::size_t most = 8;  // of a stream: as many as may lie between two marks
  const std::size_t count = native_count_.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < count; ++i) {
    const NativeStream& native = *natives_[i];
    for (auto& operation : native.history.after(native.timeline().completed(), native.timeline().submitted(), most))
      suspects.push_back(
          {std::move(operation.name), Place{device_, operation.stream}.to_string(), std::move(operation.site)});
  }
}

}  // namespace cox::detail
