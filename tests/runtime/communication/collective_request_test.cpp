#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/communication/collective_request.hpp>

#include <optional>
#include <string>

using namespace cox;
using cox::test::mentions;

namespace {

CollectiveRequest asked_here(CollectiveOperation operation, Caller caller = {}) {
  return {.operation = operation, .element_type = ElementType::F32, .count = 4, .caller = caller};
}

/// What is said of a request and the same one after `change`.
template <class Change>
std::string difference(CollectiveOperation operation, Change change) {
  CollectiveRequest other = asked_here(operation);
  change(other);
  return mismatch(asked_here(operation), other).value_or("");
}

}  // namespace

TEST_CASE("Every collective operation goes with itself, a send with a receive, and nothing else") {
  using enum CollectiveOperation;
  const auto go_together = [](CollectiveOperation a, CollectiveOperation b) {
    if (a == Send) return b == Receive;
    if (a == Receive) return b == Send;
    return a == b;
  };
  for (const auto& first : collective_operations)
    for (const auto& other : collective_operations)
      CHECK(mismatch(asked_here(first.operation), asked_here(other.operation)).has_value() !=
            go_together(first.operation, other.operation));
}

TEST_CASE("Groups go together if they have as many operations and each goes with its counterpart") {
  using enum CollectiveOperation;
  const CollectiveRequests both{asked_here(AllReduce), asked_here(AllGather)};
  CHECK_FALSE(mismatch(both, both).has_value());
  CHECK(mentions(mismatch(both, CollectiveRequests{asked_here(AllReduce)}).value_or(""), {"2", "1", "group"}));
  CollectiveRequests other = both;
  other[1].count = 9;
  CHECK(mentions(mismatch(both, other).value_or(""), {"operation 2 of the group", "count", "9"}));
  CHECK(mentions(to_string(both), {"group of 2", "all_reduce (sum) of 4 f32"}));
}

TEST_CASE("A mismatch names the argument, both values and both call sites") {
  const CollectiveRequest first = asked_here(CollectiveOperation::AllReduce);
  CollectiveRequest other = asked_here(CollectiveOperation::AllReduce);
  other.count = 8;
  const auto line = [](const CollectiveRequest& request) { return ":" + std::to_string(request.caller.site.line()); };
  REQUIRE(line(first) != line(other));
  const std::string text = mismatch(first, other).value();
  CHECK(mentions(text, {"count is 4", "8", "all_reduce", "collective_request_test.cpp", line(first), line(other)}));

  using enum CollectiveOperation;
  CHECK(mentions(difference(AllGather, [](auto& r) { r.element_type = ElementType::BF16; }), {"type", "f32", "bf16"}));
  CHECK(mentions(difference(ReduceScatter, [](auto& r) { r.reduce_operation = ReduceOperation::Max; }),
                 {"reduce operation", "sum", "max"}));
  CHECK(mentions(difference(Broadcast, [](auto& r) { r.root = 2; }), {"root", "0", "2"}));
  CHECK(mentions(difference(Broadcast, [](auto& r) { r.operation = Barrier; }), {"operation", "broadcast", "barrier"}));
}

TEST_CASE("An argument that an operation does not have may differ") {
  using enum CollectiveOperation;
  const auto change_all = [](CollectiveRequest& request) {
    request.root = 1;
    request.count = 9;
    request.element_type = ElementType::I8;
    request.reduce_operation = ReduceOperation::Min;
  };
  CHECK(difference(Barrier, change_all).empty());
  CHECK(difference(AllReduce, [](auto& r) { r.root = 1; }).empty());
  CHECK(difference(Broadcast, [](auto& r) { r.reduce_operation = ReduceOperation::Min; }).empty());
  CHECK_FALSE(difference(Reduce, change_all).empty());
}

TEST_CASE("A request is told in one line with the arguments that it has") {
  const std::string reduce = to_string(asked_here(CollectiveOperation::Reduce));
  CHECK(mentions(reduce, {"reduce (sum) (root 0) of 4 f32 at ", "collective_request_test.cpp:"}));
  CHECK_FALSE(mentions(to_string(asked_here(CollectiveOperation::Barrier)), {"f32"}));
}

TEST_CASE("Operations with different tags do not go together, and the difference names both tags") {
  for (const CollectiveOperation operation : {CollectiveOperation::AllReduce, CollectiveOperation::Barrier}) {
    CHECK(difference(operation, [](CollectiveRequest& other) { other.tag = {}; }).empty());
    const std::string text =
        difference(operation, [](CollectiveRequest& other) { other.tag = {.step = 7, .part = 2}; });
    CHECK(mentions(text, {"tag", "part 0 of step 0", "part 2 of step 7"}));
  }
}
