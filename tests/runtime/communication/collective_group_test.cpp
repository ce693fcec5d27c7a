#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/communication/collective_error.hpp>
#include <coxswain/runtime/communication/collective_group.hpp>
#include <coxswain/runtime/error/io_error.hpp>

#include <array>
#include <cstddef>
#include <string>
#include <vector>

using namespace cox;
using cox::test::kind_of;
using cox::test::mentions;
using cox::test::message_of;

namespace {

constexpr std::array devices{DeviceId{0, 0}, DeviceId{0, 1}, DeviceId{0, 2}};

Handle memory(std::size_t bytes) {
  const MemoryOwner owner{.device = devices[1], .generation = 1};
  return {ManagedMemoryHandle(ManagedMemory::create(owner, bytes)), StreamId::current()};
}

CollectiveGroup group_of_rank_1() { return {CommunicationId(devices), devices[1], Caller{}}; }

/// The one call that `put` puts into a group.
template <class Put>
CollectiveCall call_of(Put put) {
  CollectiveGroup group = group_of_rank_1();
  put(group);
  CollectiveCallList calls = std::move(group).take_calls();
  REQUIRE(calls.size() == 1);
  return std::move(calls.front());
}

/// What `put` is refused for; the group must be as before.
template <class Put>
std::string refusal_of(Put put) {
  CollectiveGroup group = group_of_rank_1();
  const auto attempt = [&] { put(group); };
  CHECK(kind_of<CollectiveError>(attempt) == CollectiveError::Kind::Validation);
  CHECK(group.empty());
  return message_of(attempt);
}

}  // namespace

TEST_CASE("The count of a collective is that of the smaller buffer of a rank") {
  const Handle small = memory(24);
  const Handle large = memory(72);
  CHECK(call_of([&](auto& g) { g.all_reduce(small, small, ElementType::F64); }).request.count == 3);
  CHECK(call_of([&](auto& g) { g.all_gather(small, large, ElementType::F32); }).request.count == 6);
  CHECK(call_of([&](auto& g) { g.reduce_scatter(large, small, ElementType::F16); }).request.count == 12);
  CHECK(call_of([&](auto& g) { g.all_to_all(large, memory(72), ElementType::U8); }).request.count == 24);
  CHECK(call_of([&](auto& g) { g.send(small, ElementType::I32, devices[0]); }).request.count == 6);
  CHECK(call_of([&](auto& g) { g.barrier(); }).request.count == 0);
  CHECK(call_of([&](auto& g) { g.all_reduce(memory(0), memory(0), ElementType::F32); }).request.count == 0);
}

TEST_CASE("A rank brings no memory that an operation does not take from it") {
  const Handle some = memory(16);
  const auto reduce = [&](DeviceId root) {
    return call_of([&](auto& g) {
      g.reduce(some, root == devices[1] ? some : Handle{}, ElementType::F32, ReduceOperation::Max, root);
    });
  };
  CHECK_FALSE(reduce(devices[2]).destination.memory);
  CHECK(reduce(devices[1]).destination.memory);
  CHECK(reduce(devices[2]).request.root == 2);
  const auto broadcast = [&](DeviceId root) {
    return call_of([&](auto& g) { g.broadcast(root == devices[1] ? some : Handle{}, some, ElementType::F32, root); });
  };
  CHECK_FALSE(broadcast(devices[0]).source.memory);
  CHECK(broadcast(devices[1]).source.memory);
}

TEST_CASE("Memory that does not fit the operation is refused with the sizes") {
  const Handle some = memory(12);
  CHECK(mentions(refusal_of([&](auto& g) { g.all_reduce(some, some, ElementType::F64); }), {"12 bytes", "f64"}));
  CHECK(mentions(refusal_of([&](auto& g) { g.all_reduce(some, memory(16), ElementType::F32); }),
                 {"12 bytes", "16 bytes", "all_reduce", devices[1].to_string()}));
  CHECK(mentions(refusal_of([&](auto& g) { g.reduce_scatter(memory(16), some, ElementType::F32); }),
                 {"4 elements", "3 ranks"}));
  CHECK(
      mentions(refusal_of([&](auto& g) { g.all_reduce(Handle{}, some, ElementType::F32); }), {"source", "no memory"}));
  CHECK(mentions(refusal_of([&](auto& g) { g.send(Handle{}, ElementType::F32, devices[0]); }), {"no memory"}));
  CHECK(mentions(refusal_of([&](auto& g) { g.all_reduce(some, some, ElementType::Bool); }), {"bool"}));
  CHECK(mentions(refusal_of([&](auto& g) { g.broadcast(some, some, ElementType::F32, {0, 7}); }), {"host:7"}));
  CHECK(mentions(refusal_of([&](auto& g) { g.send(some, ElementType::F32, devices[1]); }), {"itself"}));
}

TEST_CASE("In one memory a collective is in place exactly as NCCL has it, or apart") {
  const Handle all = memory(36);
  const auto part = [&](std::size_t from, std::size_t bytes) {
    return all.offset_start(from).offset_end(36 - from - bytes);
  };
  CHECK_NOTHROW(call_of([&](auto& g) { g.all_reduce(all, all, ElementType::F32); }));
  CHECK_NOTHROW(call_of([&](auto& g) { g.all_gather(part(12, 12), all, ElementType::F32); }));
  CHECK_NOTHROW(call_of([&](auto& g) { g.reduce_scatter(all, part(12, 12), ElementType::F32); }));
  CHECK_NOTHROW(call_of([&](auto& g) { g.all_reduce(part(0, 16), part(16, 16), ElementType::F32); }));
  refusal_of([&](auto& g) { g.all_reduce(part(0, 16), part(12, 16), ElementType::F32); });
  refusal_of([&](auto& g) { g.all_gather(part(0, 12), all, ElementType::F32); });
  refusal_of([&](auto& g) { g.reduce_scatter(all, part(24, 12), ElementType::F32); });
  refusal_of([&](auto& g) { g.all_to_all(all, all, ElementType::F32); });
}

TEST_CASE("A transfer of rows brings them, and counts the elements without the padding") {
  const Handle padded = memory(64);
  const CollectiveCall call =
      call_of([&](auto& g) { g.send(padded.copy_descriptor({2, 3}, {8, 1}, 4), ElementType::F32, devices[0]); });
  CHECK(call.request.count == 6);
  CHECK(call.rows.row_bytes == 12);
  CHECK(call.rows.pitch == 32);
  CHECK(call.request.root == 0);
  CollectiveGroup group = group_of_rank_1();
  CHECK(kind_of<IoError>([&] {
          group.send(padded.copy_descriptor({4, 3}, {8, 1}, 4), ElementType::F32, devices[0]);
        }) == IoError::Kind::OutOfBounds);
}

TEST_CASE("A group keeps its operations in order, and a transfer stands alone") {
  const Handle some = memory(12);
  CollectiveGroup group = group_of_rank_1();
  group.all_reduce(some, some, ElementType::F32);
  group.barrier();
  CHECK(kind_of<CollectiveError>([&] { group.send(some, ElementType::F32, devices[0]); }) ==
        CollectiveError::Kind::Validation);
  const CollectiveCallList calls = std::move(group).take_calls();
  REQUIRE(calls.size() == 2);
  CHECK(calls[0].request.operation == CollectiveOperation::AllReduce);
  CHECK(calls[1].request.operation == CollectiveOperation::Barrier);
}

TEST_CASE("A device that is not among those of the communicator has no rank in it") {
  CHECK(kind_of<CollectiveError>([] { CollectiveGroup(CommunicationId(devices), {0, 9}, Caller{}); }) ==
        CollectiveError::Kind::Validation);
}

TEST_CASE("A window that is not aligned for its elements is refused, and one of nothing is not") {
  const Handle whole = memory(64);
  const Handle odd = whole.offset_start(2).offset_end(2);  // 60 bytes
  for (const ElementType type : {ElementType::I32, ElementType::F32})
    CHECK(mentions(refusal_of([&](auto& g) { g.all_reduce(odd, memory(60), type); }),
                   {"source begins 2 bytes into its memory", "not aligned", "of 4 bytes"}));
  CHECK(
      mentions(refusal_of([&](auto& g) { g.all_reduce(memory(60), odd, ElementType::F32); }), {"destination begins"}));
  const Handle eighth = whole.offset_start(4).offset_end(4);  // 56 bytes
  CHECK(mentions(refusal_of([&](auto& g) { g.all_gather(eighth, memory(168), ElementType::U64); }), {"of 8 bytes"}));
  CHECK(call_of([&](auto& g) { g.all_reduce(eighth, eighth, ElementType::F32); }).request.count == 14);
  CHECK(call_of([&](auto& g) { g.all_reduce(odd, odd, ElementType::F16); }).request.count == 30);
  const Handle nothing = whole.offset_start(2).offset_end(62);
  CHECK(call_of([&](auto& g) { g.all_reduce(nothing, nothing, ElementType::F32); }).request.count == 0);
}
