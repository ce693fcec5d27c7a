#pragma once

#include <coxswain/collectives/communicator/bucket_plan.hpp>
#include <coxswain/device_handle/base/call_error.hpp>
#include <coxswain/device_handle/base/stream_id.hpp>
#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/runtime/async/future.hpp>
#include <coxswain/runtime/bytes/bytes.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>
#include <coxswain/runtime/communication/collective_group.hpp>
#include <coxswain/runtime/communication/communication_id.hpp>
#include <coxswain/runtime/communication/reduce_operation.hpp>
#include <coxswain/runtime/handle/handle.hpp>
#include <coxswain/runtime/tensor/element_type.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

namespace cox {

/// Reduces the gradients of a model over all ranks, in buckets, while later gradients are still being computed.
///
///     GradientBuckets buckets(client, devices, gradients);       // the same gradients on every rank
///     each step:
///       backward:  buckets.add(i, gradient_of_i)                 // as soon as the work that computes it is queued
///       auto reduced = buckets.finish();
///       ...                                                      // queue work that uses the gradients
///       reduced.get();                                           // throws the first failure
///
/// A bucket is reduced in place when all its gradients have been added and all earlier buckets have been submitted. So
/// the order of buckets is the same on all ranks, in whatever order and from whatever streams the gradients are added.
/// The buckets have a stream of their own, which waits for exactly the work that computes the gradients. Work that
/// later uses a gradient, on any stream, waits for its bucket. All functions: any thread; none waits for the device.
///
/// Memory. By default the gradients are memory of the caller, and a bucket is reduced as one group of their tensors.
/// With BucketOptions::own_memory each bucket is one allocation, reduced as one tensor, and gradient(i) is a view of
/// it:
///
///     GradientBuckets buckets(client, devices, gradients, ReduceOperation::Mean, {.own_memory = true});
///       backward:  client.launch(kernel, count, KernelArguments{}.with_buffer(buckets.gradient(i))); buckets.add(i);
///
/// The memory is zero at first, and keeps the reduced gradients until the next step overwrites them. Each view starts
/// at a multiple of BucketPlan::view_alignment; the padding in between is reduced too, and stays zero as long as no
/// work of the caller writes it. Because hazards are tracked for each allocation, kernels on different streams that
/// write gradients of one bucket run one after the other.
///
/// Failures are not lost (L12). The future of finish() throws them. If it is not taken, the next blocking call on each
/// stream that called add() or finish() in that step throws them, with the first cause. GradientBuckets cannot be
/// captured: a capture on a stream that calls add(), finish() or reset() fails, and graph_stop_capture throws
/// ServerError Graph.
///
/// After a failure (L14) the gradients of a bucket that was not reduced are poisoned on every rank. Memory of the
/// caller is good again once it is overwritten. Owned memory is not, since a gradient is only a part of its allocation:
/// call reset() on every rank before the work of the next step is queued, or start each step with a kernel that
/// overwrites all of buffer(b), declared as Access::Overwrite.
template <class Client>
class GradientBuckets {
 public:
  using Site = std::source_location;

  /// With own_memory, allocates the buckets as persistent memory on the client's stream and clears them; that no memory
  /// is left is a failure of that stream. Throws CollectiveError Validation if the device is not one of `devices`, or,
  /// with own_memory, if the bytes of a gradient are not a whole number of its elements; throws what
  /// ComputeClient::create throws.
  GradientBuckets(Client client, CommunicationId devices, std::vector<Gradient> gradients,
                  ReduceOperation operation = ReduceOperation::Mean, const BucketOptions& options = {},
                  Site site = Site::current())
      : caller_(client),
        client_(std::move(client)),
        devices_(std::move(devices)),
        gradients_(std::move(gradients)),
        operation_(operation),
        plan_(gradients_, options),
        own_memory_(options.own_memory),
        added_(gradients_.size()),
        missing_(missing_of(plan_)) {
    static_cast<void>(devices_.rank_of(client_.device_id(), site));
    client_.set_stream(StreamId::allocate());
    if (options.own_memory) allocate(site);
  }
  GradientBuckets(const GradientBuckets&) = delete;
  GradientBuckets& operator=(const GradientBuckets&) = delete;
  /// If it is destroyed in the middle of a step, gradients of incomplete buckets are not reduced.
  ~GradientBuckets() {
    if (callers_.empty()) return;
    try {
      client_.end_failure_reports();
    } catch (const CallError& error) {  // nothing is left to end if the device is closed
      if (error.kind() != CallError::Kind::Closed && error.kind() != CallError::Kind::Forked)
        report_task_error({client_.device_id(), client_.stream_id(), std::current_exception()});
    } catch (...) {
      report_task_error({client_.device_id(), client_.stream_id(), std::current_exception()});
    }
  }

  [[nodiscard]] const BucketPlan& plan() const noexcept { return plan_; }

  // Owned memory. These calls throw CollectiveError Validation without own_memory, and for an index out of range.
  // ---------------------------------------------------------------------------------------------------------------

  /// The memory of gradient `index`: a view of its bucket's buffer.
  [[nodiscard]] Handle gradient(std::size_t index, Site site = Site::current()) const {
    require_gradient(index, site);
    const Handle& whole = buffer(plan_.bucket_of(index), site);
    const std::size_t begin = plan_.offset_of(index);
    return whole.offset_start(begin, site).offset_end(whole.size() - begin - gradients_[index].bytes, site);
  }
  /// The whole allocation of a bucket, with its gradients at BucketPlan::offset_of: for a kernel that clears, scales or
  /// measures all gradients of the bucket at once.
  [[nodiscard]] const Handle& buffer(std::size_t bucket, Site site = Site::current()) const {
    require_own_memory(true, site);
    if (bucket >= buffers_.size())
      refuse("there is no bucket " + std::to_string(bucket) + ": there are " + std::to_string(buffers_.size()) +
                 ", counted from 0",
             site);
    return buffers_[bucket];
  }

  // A step
  // ---------------------------------------------------------------------------------------------------------------

  /// With own_memory: says that the work that computes gradient `index` has been queued. Throws as the overload below.
  void add(std::size_t index, Site site = Site::current()) {
    const std::lock_guard lock(mutex_);
    require_own_memory(true, site);
    check(index, site);
    note(index, Handle(), site);
  }
  /// Adds the memory of gradient `index`. It is reduced in place after the work that is queued on it. The caller may
  /// drop its handle at once. Throws CollectiveError Validation if there is no such gradient, its size differs from the
  /// size given to the constructor, it has already been added in this step, or with own_memory. Throws what
  /// ComputeClient::report_failures_to throws; then nothing has changed. Throws what the collectives of ComputeClient
  /// throw; then the gradient has been added, and the next call tries again to submit the complete buckets.
  void add(std::size_t index, const Handle& memory, Site site = Site::current()) {
    const std::lock_guard lock(mutex_);
    require_own_memory(false, site);
    check(index, site);
    if (memory.size_in_used() != gradients_[index].bytes)
      refuse("gradient " + std::to_string(index) + " has " + std::to_string(memory.size_in_used()) +
                 " bytes, but was declared with " + std::to_string(gradients_[index].bytes),
             site);
    note(index, memory, site);
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
    return end_step(site, AfterStep::Keep);
  }

  /// Abandons the step: gradients of buckets that have not been submitted count as not added and are not reduced, and
  /// the next add() belongs to a new step. Then overwrites owned memory with zeros, in the order of the calls to the
  /// device: after work that was queued before, before work that is queued later. This ends its poisoning. Returns a
  /// future that is ready when the buckets that have been submitted are reduced; it throws their failures as that of
  /// finish() does.
  ///
  /// For a step that cannot be finished, and after the future of a step has thrown. Call it on every rank, or on none:
  /// a bucket is reduced only if all ranks are at the same bucket and have finished equally many steps since the last
  /// reset(), their creation, or the opening of the communicator. Otherwise the reduction fails on all ranks with
  /// CollectiveError Mismatch, which names both steps and buckets. If the ranks may have stopped at different buckets,
  /// abort the communicator (abort_collective) before, and open it again (ensure_init_collective) after all ranks have
  /// called reset(). Throws what ComputeClient::sync and write throw: memory may then not have been cleared, and
  /// reset() can be called again.
  [[nodiscard]] Future<void> reset(Site site = Site::current()) {
    const std::lock_guard lock(mutex_);
    report_to_caller(site);
    return end_step(site, AfterStep::Clear);
  }

 private:
  static std::vector<std::size_t> missing_of(const BucketPlan& plan) {
    std::vector<std::size_t> missing(plan.buckets());
    for (std::size_t bucket = 0; bucket < missing.size(); ++bucket) missing[bucket] = plan.members(bucket).size();
    return missing;
  }

  void allocate(const Site& site) {
    for (std::size_t index = 0; index < gradients_.size(); ++index) {
      const Gradient& gradient = gradients_[index];
      if (gradient.bytes % element_size(gradient.type) != 0)
        refuse("the " + std::to_string(gradient.bytes) + " bytes of gradient " + std::to_string(index) +
                   " are not a whole number of " + std::string(to_string(gradient.type)),
               site);
    }
    const Bytes zeros = zeros_of_largest();
    buffers_.reserve(plan_.buckets());
    caller_.memory_persistent_allocation(
        [&] {
          for (std::size_t bucket = 0; bucket < plan_.buckets(); ++bucket)
            buffers_.push_back(caller_.create(zeros.slice(0, plan_.bucket_size(bucket)), site));
        },
        site);
  }
  // Queued on the buckets' stream.
  void clear(const Site& site) {
    if (buffers_.empty()) return;
    const Bytes zeros = zeros_of_largest();
    for (std::size_t bucket = 0; bucket < plan_.buckets(); ++bucket)
      client_.write(buffers_[bucket], zeros.slice(0, plan_.bucket_size(bucket)), site);
  }
  [[nodiscard]] Bytes zeros_of_largest() const {
    std::size_t largest = 0;
    for (std::size_t bucket = 0; bucket < plan_.buckets(); ++bucket)
      largest = std::max(largest, plan_.bucket_size(bucket));
    return Bytes::zeroed(largest);
  }

  void require_own_memory(bool own, const Site& site) const {
    if (own_memory_ == own) return;
    refuse(
        own ? "they do not own the memory of the gradients" : "they own the memory of the gradients: call add(index)",
        site);
  }
  void require_gradient(std::size_t index, const Site& site) const {
    if (index >= gradients_.size())
      refuse("there is no gradient " + std::to_string(index) + ": there are " + std::to_string(gradients_.size()) +
                 ", counted from 0",
             site);
  }
  void check(std::size_t index, const Site& site) const {
    require_gradient(index, site);
    if (plan_.bucket_of(index) < next_ || added_[index])
      refuse("gradient " + std::to_string(index) + " has been added already", site);
  }

  void note(std::size_t index, const Handle& memory, const Site& site) {
    report_to_caller(site);
    added_[index] = memory;
    --missing_[plan_.bucket_of(index)];
    begin_complete(site);
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
    const auto members = plan_.members(bucket);
    restart_if_renewed(site);
    client_.collective_group(
        devices_,
        [&](CollectiveGroup& group) {
          group.tag({.step = step_, .part = static_cast<std::uint32_t>(bucket)});
          if (own_memory_)
            return group.all_reduce(buffers_[bucket], buffers_[bucket], gradients_[members.front()].type, operation_);
          for (const std::size_t index : members)
            group.all_reduce(*added_[index], *added_[index], gradients_[index].type, operation_);
        },
        site);
    for (const std::size_t index : members) added_[index].reset();
  }

  // The ranks may have failed at different steps before the communicator was opened again.
  void restart_if_renewed(const Site& site) {
    std::weak_ptr<const void> now = client_.communicator(devices_, site);
    if (!now.owner_before(communicator_) && !communicator_.owner_before(now)) return;
    communicator_ = std::move(now);
    step_ = 0;
  }

  enum class AfterStep : std::uint8_t { Keep, Clear };  // what becomes of owned memory
  Future<void> end_step(const Site& site, AfterStep after) {
    Future<void> reduced = client_.sync(site);
    if (after == AfterStep::Clear) clear(site);
    client_.end_failure_reports(site);
    callers_.clear();
    step_ = after == AfterStep::Clear ? 0 : step_ + 1;
    next_ = 0;
    missing_ = missing_of(plan_);
    added_.assign(added_.size(), std::nullopt);
    return reduced;
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
  const bool own_memory_;
  std::vector<Handle> buffers_;  // by bucket, if the memory is owned; constant
  std::mutex mutex_;
  // Guarded by mutex_, as all below. The gradients that have been added, until their bucket is submitted. A handle to
  // owned memory is empty.
  std::vector<std::optional<Handle>> added_;
  std::vector<std::size_t> missing_;        // by bucket: number of gradients that have not been added
  std::size_t next_ = 0;                    // the first bucket that has not been submitted
  std::weak_ptr<const void> communicator_;  // the last bucket was submitted to it
  // Steps finished since the last reset(), and since the communicator was opened. With the bucket, the tag of a
  // reduction.
  std::uint32_t step_ = 0;
  std::vector<StreamId> callers_;  // streams that called add() or finish() in this step
};

}  // namespace cox
