#include <coxswain/servers/cuda/stream/cuda_stream.hpp>

#include <coxswain/runtime/error/stream_error.hpp>
#include <coxswain/servers/cuda/driver/fault_report.hpp>

#include <algorithm>
#include <utility>

namespace cox::detail {

void CudaStream::fail(std::exception_ptr error) {
  if (capture.capturing()) return capture.fail(std::move(error));
  profiles.mark_all(error);
  fail_at(next_sequence(), std::move(error), reports);
}

void CudaStream::fail_after_submit(std::uint64_t sequence, std::exception_ptr error) {
  for (const auto& profile : running_profiles)
    if (profile->failure == nullptr) profile->failure = error;
  fail_at(sequence, std::move(error));
}

void CudaStream::fail_at(std::uint64_t sequence, std::exception_ptr error,
                         const std::shared_ptr<FailureReports>& others) {
  record_failure_at(sequence, error, others);
  report_failure(error);
}

void CudaStream::record_failure_at(std::uint64_t sequence, const std::exception_ptr& error,
                                   const std::shared_ptr<FailureReports>& others) noexcept {
  if (others != nullptr) {
    others->fail(*errors_, sequence, error);
  } else {
    errors_->add(sequence, error);
  }
}

void CudaStream::report_failure(const std::exception_ptr& error) const noexcept {
  report_stream_error(LogSubsystem::Cuda, {location_, error});
}

std::exception_ptr CudaStream::take_errors(std::source_location site) {
  if (gpu_faulted()) return gpu_fault_error(site);
  return errors_->take_known(location_, site);
}

std::exception_ptr CudaStream::take_remaining_errors(std::source_location site) {
  if (gpu_faulted()) return gpu_fault_error(site);
  return errors_->take_remaining(location_, site);
}

TakenError CudaStream::take_errors_before(std::uint64_t sequence, std::source_location site) {
  if (gpu_faulted()) return {gpu_fault_error(site)};
  TakenError taken = StreamErrors::take_for_future(errors_, sequence, location_, site);
  if (!taken) return taken;
  poison_log_->wait_for_spread();  // failures of one cause are delivered together
  return StreamErrors::take_later(std::move(taken), errors_, sequence, location_, site);
}

std::exception_ptr CudaStream::peek_errors(std::source_location site) const {
  if (gpu_faulted()) return gpu_fault_error(site);
  return errors_->peek(location_, site);
}

void CudaStream::add_pending_waits(const StreamPositions& collectives) {
  pending_waits_.reserve(pending_waits_.size() + collectives.size());
  for (const StreamPosition& position : collectives) {
    const auto same = std::ranges::find(pending_waits_, position.stream, &StreamPosition::stream);
    if (same != pending_waits_.end()) {
      same->position = std::max(same->position, position.position);
    } else {
      pending_waits_.push_back(position);
    }
  }
}

bool CudaStream::idle() const noexcept {
  return queue_.idle() && transfers_.empty() && pending_waits_.empty() && errors_->empty() && persistent_windows == 0 &&
         errors_.use_count() == 1 && capture.idle() && profiles.empty() && reports == nullptr;
}

}  // namespace cox::detail
