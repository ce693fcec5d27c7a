#pragma once

#include <coxswain/runtime/base/caller.hpp>
#include <coxswain/runtime/communication/collective_call.hpp>
#include <coxswain/runtime/communication/communication_id.hpp>
#include <coxswain/runtime/communication/reduce_operation.hpp>
#include <coxswain/runtime/handle/copy_descriptor.hpp>
#include <coxswain/runtime/handle/handle.hpp>
#include <coxswain/runtime/tensor/element_type.hpp>

#include <cstddef>
#include <optional>
#include <string>
#include <utility>

namespace cox {

/// One rank's part of a group of operations on one communicator. The operations are launched as one, in the order in
/// which they were added. All ranks must add the same ones. Each is checked as far as one rank can check it. For
/// ComputeClient::collective_group; to be used only on the thread that created it.
///
/// Sizes are those of the handles' windows. All functions throw CollectiveError Validation, and then add nothing, for:
/// a size that is not a whole number of elements, or does not match the other size; a window that does not begin at a
/// multiple of the element size; missing memory; elements that cannot be reduced; a root that is not one of the
/// devices; source and destination that overlap, except where an operation may be in place.
class CollectiveGroup {
 public:
  /// Throws CollectiveError Validation if `device` is not one of `devices`.
  CollectiveGroup(CommunicationId devices, DeviceId device, const Caller& caller);

  /// Every rank gets the reduction of all sources. In place: source == destination.
  void all_reduce(const Handle& source, const Handle& destination, ElementType type,
                  ReduceOperation operation = ReduceOperation::Sum);
  /// `root` gets the reduction of all sources; the destinations of the other ranks are ignored. In place: as
  /// all_reduce.
  void reduce(const Handle& source, const Handle& destination, ElementType type, ReduceOperation operation,
              DeviceId root);
  /// Every rank gets the source of `root`; the sources of the other ranks are ignored. In place: as all_reduce.
  void broadcast(const Handle& source, const Handle& destination, ElementType type, DeviceId root);
  /// Every rank gets the sources of all ranks, one after the other. In place: the source is the rank's own part of the
  /// destination.
  void all_gather(const Handle& source, const Handle& destination, ElementType type);
  /// Every rank gets its part of the reduction of all sources. In place: the destination is the rank's own part of the
  /// source.
  void reduce_scatter(const Handle& source, const Handle& destination, ElementType type,
                      ReduceOperation operation = ReduceOperation::Sum);
  /// Part q of rank r's destination is part r of rank q's source.
  void all_to_all(const Handle& source, const Handle& destination, ElementType type);
  /// Completes when all work that was queued before it on the calling stream of every rank is complete. Other work that
  /// is queued later on the stream does not wait for it, except after ComputeClient::sync_collective().
  void barrier();

  /// Operations that are added from now on have this tag, which all ranks must have set equally: otherwise they fail
  /// with CollectiveError Mismatch, which names both tags. It finds ranks that are not at the same operation of their
  /// program although the operations themselves do not differ, such as reductions of equal size.
  void tag(const CollectiveTag& tag) noexcept { tag_ = tag; }

  // Transfers between two devices. A transfer must be the only operation of its group.

  void send(const Handle& source, ElementType type, DeviceId to);
  void receive(const Handle& destination, ElementType type, DeviceId from);
  /// For tensors whose rows may be padded on either side. Throws also as plan_copy.
  void send(CopyDescriptor source, ElementType type, DeviceId to);
  void receive(CopyDescriptor destination, ElementType type, DeviceId from);

  [[nodiscard]] bool empty() const noexcept { return calls_.empty(); }
  [[nodiscard]] CollectiveCallList take_calls() && noexcept { return std::move(calls_); }

 private:
  void add(CollectiveRequest request, const Handle* source, const Handle* destination);
  void add_transfer(CollectiveOperation operation, Binding memory, ElementType type, DeviceId other,
                    std::optional<CopyPlan> rows);
  CollectiveCall& append(const CollectiveRequest& request);
  [[nodiscard]] std::size_t elements(const CollectiveRequest& request, const char* which, std::size_t bytes) const;
  void require_aligned(const CollectiveRequest& request, const char* which, const Handle& handle) const;
  void check_overlap(const CollectiveRequest& request, const Handle& source, const Handle& destination) const;
  [[noreturn]] void refuse(const CollectiveRequest& request, const std::string& why) const;

  CommunicationId devices_;
  std::size_t rank_;
  Caller caller_;
  CollectiveTag tag_;
  CollectiveCallList calls_;
};

}  // namespace cox
