#include <coxswain/device_handle/observe/task_observer.hpp>

namespace cox {

// Returns the start time of the task: the end of the previous one, if the task was already queued by then.
std::uint64_t TaskObserver::begin_trace(const Mailbox::Item& item, const TaskTracer& tracer) noexcept {
  tracer_ = &tracer;
  operation_ = nullptr;
  if (tracer.begin != nullptr) tracer.begin(*running_.type());
  const std::uint64_t tracers = detail::task_tracers_set.load(std::memory_order_relaxed);
  if (std::exchange(tracers_seen_, tracers) != tracers) traced_until_ = 0;  // untraced tasks may have run since
  const bool known = stamps_are_time() && item.submitted != 0;
  return known && item.submitted <= traced_until_ ? traced_until_ : trace_stamp();
}

void TaskObserver::end_trace(const Mailbox::Item& item, Outcome outcome, std::uint64_t start,
                             std::uint64_t end) noexcept {
  // A stamp read early may be slightly older than one read before it; the tasks of one thread must not overlap.
  start = std::max(start, traced_until_);
  traced_until_ = std::max(start, end);
  const RunningTask::Name name = running_.last_name();
  std::exchange(tracer_, nullptr)
      ->end({.device = device_,
             .stage = stage_,
             .outcome = outcome,
             .thread = number_,
             .client = item.lane->owner.load(std::memory_order_relaxed),
             .stream = StreamId{item.stream},
             .submitted = stamps_are_time() ? std::min(item.submitted, start) : 0,
             .start = start,
             .end = traced_until_,
             .type = running_.type(),
             .operation = operation_,
             .label = name.label,
             .file = name.file,
             .line = name.line});
}

void TaskObserver::name_operation(const char* name) noexcept {
  if (tracer_ == nullptr || operation_ != nullptr) return;
  operation_ = name;
  if (tracer_->operation != nullptr) tracer_->operation(name);
}

}  // namespace cox
