#include <coxswain/runtime/communication/collective_group.hpp>

#include <coxswain/runtime/communication/collective_error.hpp>
#include <coxswain/runtime/communication/reducible_types.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <optional>

namespace cox {

using enum CollectiveOperation;

static_assert(std::ranges::all_of(element_types, [](const auto& facts) { return std::has_single_bit(facts.size); }));

CollectiveGroup::CollectiveGroup(CommunicationId devices, DeviceId device, const Caller& caller)
    : devices_(std::move(devices)), rank_(devices_.rank_of(device, caller.site)), caller_(caller) {}

void CollectiveGroup::all_reduce(const Handle& source, const Handle& destination, ElementType type,
                                 ReduceOperation operation) {
  add({.operation = AllReduce, .element_type = type, .reduce_operation = operation}, &source, &destination);
}

void CollectiveGroup::reduce(const Handle& source, const Handle& destination, ElementType type,
                             ReduceOperation operation, DeviceId root) {
  const std::size_t root_rank = devices_.rank_of(root, caller_.site);
  add({.operation = Reduce, .element_type = type, .reduce_operation = operation, .root = root_rank}, &source,
      root_rank == rank_ ? &destination : nullptr);
}

void CollectiveGroup::broadcast(const Handle& source, const Handle& destination, ElementType type, DeviceId root) {
  const std::size_t root_rank = devices_.rank_of(root, caller_.site);
  add({.operation = Broadcast, .element_type = type, .root = root_rank}, root_rank == rank_ ? &source : nullptr,
      &destination);
}

void CollectiveGroup::all_gather(const Handle& source, const Handle& destination, ElementType type) {
  add({.operation = AllGather, .element_type = type}, &source, &destination);
}

void CollectiveGroup::reduce_scatter(const Handle& source, const Handle& destination, ElementType type,
                                     ReduceOperation operation) {
  add({.operation = ReduceScatter, .element_type = type, .reduce_operation = operation}, &source, &destination);
}

void CollectiveGroup::all_to_all(const Handle& source, const Handle& destination, ElementType type) {
  add({.operation = AllToAll, .element_type = type}, &source, &destination);
}

void CollectiveGroup::barrier() { add({.operation = Barrier}, nullptr, nullptr); }

void CollectiveGroup::send(const Handle& source, ElementType type, DeviceId to) {
  add_transfer(Send, source.binding(), type, to, std::nullopt);
}

void CollectiveGroup::receive(const Handle& destination, ElementType type, DeviceId from) {
  add_transfer(Receive, destination.binding(), type, from, std::nullopt);
}

void CollectiveGroup::send(CopyDescriptor source, ElementType type, DeviceId to) {
  const CopyPlan rows = plan_copy(source, caller_.site);
  add_transfer(Send, std::move(source.binding), type, to, rows);
}

void CollectiveGroup::receive(CopyDescriptor destination, ElementType type, DeviceId from) {
  const CopyPlan rows = plan_copy(destination, caller_.site);
  add_transfer(Receive, std::move(destination.binding), type, from, rows);
}

// The smaller of the rank's buffers determines the count; the size of each of its buffers must match that count.
void CollectiveGroup::add(CollectiveRequest request, const Handle* source, const Handle* destination) {
  request.caller = caller_;
  const CollectiveOperationFacts& facts = facts_of(request.operation);
  if (facts.reduces) require_reducible(request.element_type, request.reduce_operation, caller_.site);
  // With one rank the mean equals the sum, which NCCL computes for every integer type that it reduces.
  if (devices_.world_size() == 1 && request.reduce_operation == ReduceOperation::Mean)
    request.reduce_operation = ReduceOperation::Sum;
  const std::size_t world = devices_.world_size();
  struct Side {
    const char* name;
    const Handle* handle;
    std::size_t times;
  };
  const Side sides[] = {{"source", source, facts.input_of_all_size ? world : 1},
                        {"destination", destination, facts.output_of_all_size ? world : 1}};
  std::optional<std::size_t> count;
  for (const Side& side : sides) {
    if (side.handle == nullptr) continue;
    if (!side.handle->memory().memory()) refuse(request, fmt::format("its {} has no memory", side.name));
    const std::size_t all = elements(request, side.name, side.handle->size_in_used());
    require_aligned(request, side.name, *side.handle);
    if (side.times != 1 && all % side.times != 0)
      refuse(request, fmt::format("its {} has {} elements, which cannot be divided equally among {} ranks", side.name,
                                  all, side.times));
    const std::size_t its_count = side.times == 1 ? all : all / side.times;
    if (count && *count != its_count)
      refuse(request, fmt::format("its source has {} bytes and its destination {} bytes, which do not match",
                                  source->size_in_used(), destination->size_in_used()));
    count = its_count;
  }
  request.count = count.value_or(0);
  if (source != nullptr && destination != nullptr) check_overlap(request, *source, *destination);
  CollectiveCall& call = append(request);
  if (source != nullptr) call.source = source->binding();
  if (destination != nullptr) call.destination = destination->binding();
}

void CollectiveGroup::add_transfer(CollectiveOperation operation, Binding memory, ElementType type, DeviceId other,
                                   std::optional<CopyPlan> rows) {
  CollectiveRequest request{
      .operation = operation, .element_type = type, .root = devices_.rank_of(other, caller_.site), .caller = caller_};
  if (request.root == rank_) refuse(request, "a device does not need a transfer to itself");
  if (!memory.memory) refuse(request, "its handle has no memory");
  const std::size_t bytes = rows ? rows->size() : memory.size_in_used();
  if (rows && rows->row_bytes % element_size(type) != 0)
    refuse(request, fmt::format("its rows of {} bytes are not a whole number of {}", rows->row_bytes, to_string(type)));
  request.count = elements(request, "memory", bytes);
  CollectiveCall& call = append(request);
  call.rows = rows.value_or(CopyPlan{});
  (operation == Send ? call.source : call.destination) = std::move(memory);
}

// Returns the new call, which has no memory yet.
CollectiveCall& CollectiveGroup::append(const CollectiveRequest& request) {
  if (!calls_.empty() && (is_transfer(request.operation) || is_transfer(calls_.front().request.operation)))
    refuse(request, "a transfer cannot be part of a group");
  CollectiveCall& call = calls_.emplace_back();
  call.request = request;
  call.request.tag = tag_;
  return call;
}

std::size_t CollectiveGroup::elements(const CollectiveRequest& request, const char* which, std::size_t bytes) const {
  const std::size_t size = element_size(request.element_type);  // a power of two: no division is needed
  if ((bytes & (size - 1)) != 0)
    refuse(request, fmt::format("the {} bytes of its {} are not a whole number of {}", bytes, which,
                                to_string(request.element_type)));
  return bytes >> static_cast<unsigned>(std::countr_zero(size));
}

// Allocations are aligned for elements of every type; windows of them may not be.
void CollectiveGroup::require_aligned(const CollectiveRequest& request, const char* which, const Handle& handle) const {
  const std::size_t size = element_size(request.element_type);
  if (handle.size_in_used() != 0 && (handle.offset_start() & (size - 1)) != 0)
    refuse(request, fmt::format("its {} begins {} bytes into its memory, which is not aligned for {} of {} bytes",
                                which, handle.offset_start(), to_string(request.element_type), size));
}

// Windows of one allocation must be disjoint, or lie as they do when the operation is in place.
void CollectiveGroup::check_overlap(const CollectiveRequest& request, const Handle& source,
                                    const Handle& destination) const {
  if (!(source.memory().memory() == destination.memory().memory())) return;
  const std::size_t from = source.offset_start();
  const std::size_t to = destination.offset_start();
  if (from + source.size_in_used() <= to || to + destination.size_in_used() <= from) return;
  const std::size_t part = request.count * element_size(request.element_type) * rank_;
  const CollectiveOperationFacts& facts = facts_of(request.operation);
  const bool in_place = !(facts.input_of_all_size && facts.output_of_all_size) &&
                        from + (facts.input_of_all_size ? part : 0) == to + (facts.output_of_all_size ? part : 0);
  if (!in_place) refuse(request, "its source and its destination overlap");
}

void CollectiveGroup::refuse(const CollectiveRequest& request, const std::string& why) const {
  throw CollectiveError(
      CollectiveError::Kind::Validation,
      fmt::format("{} on {} refused: {}", to_string(request.operation), devices_.devices()[rank_].to_string(), why),
      caller_.site);
}

}  // namespace cox
