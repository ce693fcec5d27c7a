#pragma once

#include <coxswain/collectives/communicator/bucket_plan.hpp>
#include <coxswain/device_handle/base/call_error.hpp>
#include <coxswain/device_handle/base/stream_id.hpp>
#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/runtime/async/future.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>
#include <coxswain/runtime/communication/collective_group.hpp>
#include <coxswain/runtime/communication/communication_id.hpp>
#include <coxswain/runtime/communication/reduce_operation.hpp>
#include <coxswain/runtime/handle/handle.hpp>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <mutex>
#include <optional>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

namespace cox {

/// Reduces the gradients of a model over all ranks, in buckets, while later gradients are still being computed:
///
///     GradientBuckets buckets(client, devices, gradients);       // the same gradients on every rank
///     each step:
///       backward:  buckets.add(i, gradient_of_i)                 // as soon as the work that computes it is queued
///       auto reduced = buckets.finish();
///       ...                                                      // queue work that uses the gradients
///       reduced.get();                                           // throws the first failure
///
/// A bucket is reduced as one group, in place, when all its gradients have been added and all earlier buckets have been
/// submitted. So the order of buckets is the same on all ranks, in whatever order and from whatever streams the
/// gradients are added. The buckets have a stream of their own, which waits for exactly the work that computes the
/// gradients. Work that later uses a gradient, on any stream, waits for its bucket. All functions: any thread; none
/// waits for the device.
///
/// Failures are not lost (L12). The future of finish() throws them. If it is not taken, the next blocking call on each
/// stream that called add() or finish() in that step throws them, with the first cause. GradientBuckets cannot be
/// captured: a capture on a stream that calls add() or finish() fails, and graph_stop_capture throws ServerError Graph.
template <class Client>
class GradientBuckets {
 public:
  using Site = std::source_location;

  /// Throws CollectiveError Validation if the device is not one of `devices`.
  GradientBuckets(Client client, CommunicationId devices, std::vector<Gradient> gradients,
                  ReduceOperation operation = ReduceOperation::Mean, const BucketOptions& options = {},
                  Site site = Site::current())
      : caller_(client),
        client_(std::move(client)),
        devices_(std::move(devices)),
        gradients_(std::move(gradients)),
        operation_(operation),
        plan_(gradients_, options),
        added_(gradients_.size()),
        missing_(missing_of(plan_)) {
    static_cast<void>(devices_.rank_of(client_.device_id(), site));
    client_.set_stream(StreamId::allocate());
  }
  GradientBuckets(const GradientBuckets&) = delete;
  GradientBuckets& operator=(const GradientBuckets&) = delete;
  /// If it is destroyed in the middle of a step, gradients of incomplete buckets are not reduced.
  ~GradientBuckets() {
    if (callers_.empty()) return;
    try {
      client_.end_failure_reports();
    } catch (const CallError&) {  // the device is closed
    } catch (...) {
      report_task_error({client_.device_id(), client_.stream_id(), std::current_exception()});
    }
  }

  [[nodiscard]] const BucketPlan& plan() const noexcept { return plan_; }

  /// Adds the memory of gradient `index`. It is reduced in place after the work that is queued on it. The caller may
  /// drop its handle at once. Throws CollectiveError Validation if there is no such gradient, its size differs from the
  /// size given to the constructor, or it has already been added in this step. Throws what
  /// ComputeClient::report_failures_to throws; then nothing has changed. Throws what the collectives of ComputeClient
  /// throw; then the gradient has been added, and the next call tries again to submit the complete buckets.
  void add(std::size_t index, const Handle& memory, Site site = Site::current()) {
    const std::lock_guard lock(mutex_);
    check(index, memory, site);
    report_to_caller(site);
    added_[index] = memory;
    --missing_[plan_.bucket_of(index)];
    begin_complete(site);
  }

  /// Ends the step: the next add() belongs to the next step. Returns a future that is ready when all gradients have
  /// been reduced. It throws failures of this step, and those of earlier steps that no call has thrown yet. finish()
  /// throws CollectiveError Validation, which names the first missing gradient, if not all have been added; then the
  /// step continues.
  [[nodiscard]] Future<void> finish(Site site = Site::current()) {
    const std::lock_guard lock(mutex_);
    report_to_caller(site);
    begin_complete(site);
    if (next_ != plan_.buckets()) refuse("gradient " + std::to_string(first_missing()) + " has not been added", site);
    Future<void> reduced = sync(site);
    client_.end_failure_reports(site);
    callers_.clear();
    next_ = 0;
    missing_ = missing_of(plan_);
    return reduced;
  }

 private:
  static std::vector<std::size_t> missing_of(const BucketPlan& plan) {
    std::vector<std::size_t> missing(plan.buckets());
    for (std::size_t bucket = 0; bucket < missing.size(); ++bucket) missing[bucket] = plan.members(bucket).size();
    return missing;
  }

  void check(std::size_t index, const Handle& memory, const Site& site) const {
    if (index >= gradients_.size())
      refuse("there is no gradient " + std::to_string(index) + ": there are " + std::to_string(gradients_.size()) +
                 ", counted from 0",
             site);
    if (plan_.bucket_of(index) < next_ || added_[index])
      refuse("gradient " + std::to_string(index) + " has been added already", site);
    if (memory.size_in_used() != gradients_[index].bytes)
      refuse("gradient " + std::to_string(index) + " has " + std::to_string(memory.size_in_used()) +
                 " bytes, but was declared with " + std::to_string(gradients_[index].bytes),
             site);
  }

  // Has failures reported to the calling stream too. Once in a step for each stream, before work is queued for it.
  void report_to_caller(const Site& site) {
    const StreamId caller = caller_.stream_id();
    if (std::ranges::find(callers_, caller) != callers_.end()) return;
    callers_.push_back(caller);
    try {
      client_.report_failures_to(caller, site);
    } catch (...) {
      callers_.pop_back();
      throw;
    }
  }

  // Under the lock, because buckets are reduced in the order of these calls.
  void begin_complete(const Site& site) {
    for (; next_ < plan_.buckets() && missing_[next_] == 0; ++next_) reduce(next_, site);
  }

  void reduce(std::size_t bucket, const Site& site) {
    client_.collective_group(
        devices_,
        [&](CollectiveGroup& group) {
          for (const std::size_t index : plan_.members(bucket))
            group.all_reduce(*added_[index], *added_[index], gradients_[index].type, operation_);
        },
        site);
    for (const std::size_t index : plan_.members(bucket)) added_[index].reset();
  }

  Future<void> sync(const Site& site) {
    client_.sync_collective(site);
    return client_.sync(site);
  }

  [[nodiscard]] std::size_t first_missing() const {
    const auto members = plan_.members(next_);
    for (const std::size_t index : members)
      if (!added_[index]) return index;
    return members.front();
  }

  [[noreturn]] void refuse(const std::string& why, const Site& site) const {
    throw CollectiveError(CollectiveError::Kind::Validation,
                          "gradient buckets on " + client_.device_id().to_string() + ": " + why, site);
  }

  const Client caller_;  // as it was passed; names the stream of a call
  Client client_;        // pinned to a stream of its own
  const CommunicationId devices_;
  const std::vector<Gradient> gradients_;
  const ReduceOperation operation_;
  const BucketPlan plan_;
  std::mutex mutex_;
  std::vector<std::optional<Handle>> added_;  // guarded by mutex_, as all below; until their bucket is submitted
  std::vector<std::size_t> missing_;          // by bucket: number of gradients that have not been added
  std::size_t next_ = 0;                      // the first bucket that has not been submitted
  std::vector<StreamId> callers_;             // streams that called add() or finish() in this step
};

}  // namespace cox
