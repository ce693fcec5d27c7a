#include <coxswain/collectives/communicator/nccl_world_part.hpp>

#include <coxswain/collectives/sequencer/collective_launch.hpp>
#include <coxswain/collectives/sequencer/collective_submission.hpp>
#include <coxswain/device_handle/base/stream_id.hpp>
#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/runtime/communication/world_process.hpp>
#include <coxswain/runtime/error/log.hpp>

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <utility>

namespace cox {
namespace {

// The world cannot go on with a process that NCCL holds: see docs/operations.md.
constexpr int cannot_continue = 87;

/// The creation, as the ranks of this process submit it. The last launch to be released, or refused, reports the
/// result.
class Creation final : public CollectiveLaunch {
 public:
  Creation(std::size_t ranks, UniqueFunction<void(const std::exception_ptr&)> met)
      : left_(ranks), met_(std::move(met)) {}

  void take_grant(LaunchGrant&& grant) override { end(grant.refusal); }
  void cancel(const std::exception_ptr& cause) noexcept override { end(cause); }

 private:
  // All ranks get the same answer.
  void end(const std::exception_ptr& refusal) {
    if (left_.fetch_sub(1, std::memory_order_acq_rel) == 1) met_(refusal);
  }

  std::atomic<std::size_t> left_;
  UniqueFunction<void(const std::exception_ptr&)> met_;
};

void meet(Communicator& communicator, const std::vector<int>& ranks,
          UniqueFunction<void(const std::exception_ptr&)> met) {
  const CommunicatorNumber number = communicator.creation();
  Sequencer& sequencer = communicator.sequencer();
  const auto launch = std::make_shared<Creation>(ranks.size(), std::move(met));
  for (const int rank : ranks) {
    CollectiveSubmission submission;
    submission.requests.push_back({.operation = CollectiveOperation::Barrier});
    submission.launch = launch;
    try {
      sequencer.submit(number, static_cast<std::size_t>(rank), std::move(submission));
    } catch (...) {
      if (rank == ranks.front()) throw;
      // The ranks before it have submitted: the sequence is aborted for them, and each of these counts as one.
      const std::exception_ptr cause = std::current_exception();
      for (auto at = ranks.rbegin(); at != ranks.rend() && *at >= rank; ++at) launch->cancel(cause);
      sequencer.abort(number, cause);
      return;
    }
  }
}

void end_meeting(Communicator& communicator, const std::vector<int>& ranks) noexcept {
  Sequencer& sequencer = communicator.sequencer();
  try {
    const CommunicatorNumber number = communicator.creation();
    for (const int rank : ranks) sequencer.note_completed(number, static_cast<std::size_t>(rank), 1);
  } catch (...) {  // the communicator has been closed
  }
  sequencer.thaw();
}

void refuse(Communicator& communicator, const std::exception_ptr& why) noexcept {
  try {
    communicator.sequencer().abort(communicator.number(), why);
  } catch (...) {
    report_task_error({communicator.devices().devices().front(), StreamId::current(), std::current_exception()});
  }
}

// Also to the standard error stream: the process ends without destructors, which could wait for NCCL.
[[noreturn]] void end_process(const std::string& text) {
  log::write(LogSubsystem::Collectives, LogLevel::Error, [&] { return text; });
  std::fprintf(stderr, "coxswain: %s; the process ends with exit code %d\n", text.c_str(), cannot_continue);
  ::_exit(cannot_continue);
}

}  // namespace

std::vector<DeviceId> own_devices(const CommunicationId& devices) {
  std::vector<DeviceId> own;
  for (const DeviceId device : devices.devices())
    if (const DeviceId name = detail::local_name(device, own_process()); name.process == 0) own.push_back(name);
  return own;
}

std::optional<NcclWorldPart> nccl_world_part(
    const std::shared_ptr<Communicator>& communicator,
    std::function<void(CommunicatorNumber, std::uint64_t, const std::exception_ptr&, DeviceId)> mark) {
  const CommunicationId& devices = communicator->devices();
  if (!devices.spans_processes()) return std::nullopt;
  const std::optional<SharedSequence> shared = communicator->sequencer().shared(communicator->number());
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < devices.world_size(); ++rank)
    if (devices.devices()[rank].process == own_process()) ranks.push_back(static_cast<int>(rank));
  return NcclWorldPart{
      .communicator = shared->communicator,
      .number = communicator->number(),
      .ranks = ranks,
      .meet = [communicator, ranks](auto met) { meet(*communicator, ranks, std::move(met)); },
      .end_meeting = [communicator, ranks] { end_meeting(*communicator, ranks); },
      .refuse = [communicator](const std::exception_ptr& why) { refuse(*communicator, why); },
      .mark = std::move(mark),
      .ended = [communicator](CommunicatorNumber sequence, std::size_t rank,
                              std::uint64_t last) { communicator->sequencer().note_completed(sequence, rank, last); },
      .cannot_leave = end_process};
}

}  // namespace cox
