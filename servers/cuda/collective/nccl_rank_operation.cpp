#include <coxswain/servers/cuda/collective/nccl_rank_operation.hpp>

#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/servers/cuda/collective/communication_stream.hpp>
#include <coxswain/servers/cuda/driver/cuda_try.hpp>
#include <coxswain/servers/cuda/driver/fault_report.hpp>
#include <coxswain/servers/cuda/peer/launch_gate.hpp>

#include <utility>

namespace cox::detail {

void NcclRankOperation::on_release(std::shared_ptr<void> shared) {
  LaunchGate::of_process().add_part();
  reserve_slot();
  operation_ = std::static_pointer_cast<NcclOperation>(std::move(shared));
  // The same from all ranks. Only read by those that come after the first: the line is all ranks'.
  if (operation_->sequence.load(std::memory_order_relaxed) != sequence)
    operation_->sequence.store(sequence, std::memory_order_relaxed);
  of->communication->nccl->submit(shared_from_this());
}

// What the stream waits for has been issued.
void NcclRankOperation::issue(const IssueTarget& target) noexcept {
  CommunicationStream& line = *of->communication->nccl;
  try {
    of->recorder->started(sequence, of->rank);
    if (gpu_faulted()) throw_gpu_fault(site);
    NcclClique::Launching launching = of->clique->launching(of->rank);
    if (operation_->algorithm != CollectiveAlgorithm::Nccl) {
      launching.in_use.unlock();
      opened_ = std::move(launching.opened);
      return line.launch_kernels(*this);
    }
    opened_ = launching.opened;
    of->clique->launch(launching, of->rank, calls, target.stream());
    launching.in_use.unlock();
    event_ = target.queue->mark(of->communication->streams.events());
    const std::shared_ptr<NcclRankOperation> self = shared_from_this();
    line.note({&self, 1});
  } catch (...) {
    fail_launch(std::current_exception());
  }
}

// It may have kernels that run: they need their memory until they have ended.
void NcclRankOperation::fail_launch(const std::exception_ptr& error) noexcept {
  if (over_) return;
  std::shared_ptr<CudaEvent> end;
  try {
    if (opened_ != nullptr) {
      end = of->communication->nccl->end_of_all();
      end->notify([opened = std::move(opened_)] {});
    }
  } catch (...) {
    report_task_error({of->group->devices().devices()[of->rank], StreamId::current(), std::current_exception()});
  }
  give_up(error, end);
}

std::exception_ptr NcclRankOperation::launch_failure() const noexcept {
  try {
    throw_cuda_error(result_, "launch", site);
  } catch (...) {
    return std::current_exception();
  }
}

// The others wait for this rank, perhaps on their devices.
void NcclRankOperation::give_up(const std::exception_ptr& error, const std::shared_ptr<CudaEvent>& end) noexcept {
  if (std::exchange(over_, true)) return;
  of->clique->abort(error);
  close(error, end);
}

// It has been launched, and ends with `event`; or has failed.
void NcclRankOperation::close(const std::exception_ptr& error, const std::shared_ptr<CudaEvent>& event) noexcept {
  over_ = true;
  operation_ = nullptr;
  opened_ = nullptr;
  end(error, event);
  retire();
  LaunchGate::of_process().remove_part();
}

}  // namespace cox::detail
