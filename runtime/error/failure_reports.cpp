#include <coxswain/runtime/error/failure_reports.hpp>

#include <utility>

namespace cox::detail {

void FailureReports::add(std::shared_ptr<StreamErrors> stream, std::uint64_t position) {
  const std::lock_guard lock(mutex_);
  streams_.push_back({std::move(stream), position});
  for (const Failure& failure : failures_) report(streams_.back(), failure);
}

// If the shared state cannot be allocated, the failure may be delivered on both sides.
void FailureReports::fail(StreamErrors& helper, std::uint64_t position, const std::exception_ptr& error) noexcept {
  const std::lock_guard lock(mutex_);
  Failure failure{error, nullptr};
  try {
    failure.shared = std::make_shared<SharedDelivery>();
    if (failures_.size() < StreamErrors::max_failures) failures_.push_back(failure);
  } catch (...) {
  }
  helper.add({position, error, failure.shared, StreamErrors::Side::Helper});
  for (const Stream& stream : streams_) report(stream, failure);
}

void FailureReports::report(const Stream& stream, const Failure& failure) noexcept {
  stream.errors->add({stream.position, failure.error, failure.shared, StreamErrors::Side::Caller});
}

}  // namespace cox::detail
