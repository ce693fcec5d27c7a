#include <coxswain/servers/cuda/detail/nccl_part.hpp>

#include <coxswain/runtime/communication/collective_error.hpp>
#include <coxswain/servers/cuda/detail/cuda_try.hpp>
#include <coxswain/servers/cuda/detail/fault_report.hpp>

#include <utility>
#include <vector>

namespace cox::detail {

/// Issues the part; or gives it up, if it is dropped without that.
struct NcclPart::Turn {
  std::shared_ptr<NcclPart> part;

  explicit Turn(std::shared_ptr<NcclPart> whose) noexcept : part(std::move(whose)) {}
  Turn(Turn&&) noexcept = default;
  Turn& operator=(Turn&&) = delete;
  ~Turn() {
    if (part == nullptr || part->issued_) return;
    part->give_up(std::make_exception_ptr(
        CollectiveError(CollectiveError::Kind::Backend, "the driver could not be told what it waits for", part->site)));
  }
  void operator()(const IssueTarget& target) const { part->issue(target); }
};

void NcclPart::take_turn(std::shared_ptr<void> shared) {
  operation_ = std::static_pointer_cast<NcclOperation>(std::move(shared));
  operation_->sequence.store(sequence, std::memory_order_relaxed);  // the same from all ranks
  communication->doorbell->post([part = shared_from_this()] { part->communication->nccl->add(part); });
}

// What the stream waits for has been issued.
void NcclPart::issue(const IssueTarget& target) noexcept {
  issued_ = true;
  recorder->started(sequence, rank);
  try {
    if (gpu_faulted()) throw_gpu_fault(site);
    if (operation_->connects) {
      clique->bring(operation_, rank,
                    {.calls = std::move(calls),
                     .stream = target.stream,
                     .launched = [part = shared_from_this(), target](const std::exception_ptr& failure) {
                       part->communication->doorbell->post([part, target, failure] {
                         part->was_launched(target, failure);
                         part->communication->nccl->held_ = false;
                         part->communication->nccl->advance();
                       });
                     }});
      return;
    }
    clique->launch(operation_, rank, calls, target.stream);
  } catch (...) {
    give_up(std::current_exception());
    if (operation_->connects) communication->nccl->go_on();
    return;
  }
  was_launched(target, nullptr);
}

void NcclPart::was_launched(const IssueTarget& target, const std::exception_ptr& failure) noexcept {
  try {
    if (failure != nullptr) std::rethrow_exception(failure);
    if (gpu_faulted()) throw_gpu_fault(site);
    NcclLine& line = *communication->nccl;
    CudaStreams& streams = communication->streams;
    NcclOperation::Launched launched;
    if (line.last_end_ != nullptr) launched.behind.push_back(line.last_end_);
    std::vector<std::shared_ptr<CudaEvent>> events;
    streams.add_events(waits, events);
    launched.behind.insert(launched.behind.end(), events.begin(), events.end());
    const std::shared_ptr<CudaEvent> event = target.queue->mark(streams.events());
    launched.end = event;
    launched.fail = [part = shared_from_this()](const std::exception_ptr& error) { part->fail(error); };
    clique->add(operation_, rank, std::move(launched));
    line.last_end_ = event;
    end(nullptr, event);
  } catch (...) {
    give_up(std::current_exception());
  }
}

// The others wait for this rank, perhaps on their devices.
void NcclPart::give_up(const std::exception_ptr& error) noexcept {
  clique->abort(error);
  end(error, nullptr);
}

NcclLine::~NcclLine() {
  if (scratch_ == 0) return;
  const CurrentContext current(streams_.events().context());
  COX_CUDA_CHECK(memory_free(scratch_));
}

void* NcclLine::scratch() {
  if (scratch_ == 0) COX_CUDA_TRY(memory_alloc(&scratch_, 512));
  return reinterpret_cast<void*>(scratch_);  // NOLINT(performance-no-int-to-ptr): an address of the device
}

void NcclLine::add(std::shared_ptr<NcclPart> part) {
  turns_.push_back(std::move(part));
  advance();
}

void NcclLine::go_on() {
  doorbell_->post([line = shared_from_this()] {
    line->held_ = false;
    line->advance();
  });
}

void NcclLine::advance() {
  while (!held_ && !turns_.empty()) {
    const std::shared_ptr<NcclPart> part = turns_.front();
    try {
      held_ = !part->clique->created([line = shared_from_this()] { line->go_on(); });
      if (held_) return;
    } catch (...) {
      turns_.pop_front();
      part->give_up(std::current_exception());
      continue;
    }
    turns_.pop_front();
    held_ = part->operation_->connects;
    submit(part);
  }
}

void NcclLine::submit(const std::shared_ptr<NcclPart>& part) {
  try {
    if (stream_ == nullptr) stream_ = streams_.make_apart();
    streams_.submit(*stream_, part->waits, {nullptr, nullptr, part->site}, NcclPart::Turn(part));
  } catch (...) {
    if (!part->issued_) part->give_up(std::current_exception());
    part->issued_ = true;
    if (part->operation_->connects) held_ = false;
  }
}

}  // namespace cox::detail
