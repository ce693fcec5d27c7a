#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/communication/reducible_types.hpp>

using cox::CollectiveError;
using cox::ElementType;
using cox::ReduceOperation;
using cox::test::kind_of;
using cox::test::mentions;
using cox::test::message_of;

TEST_CASE("Every element type but bool can be reduced, and says in which type") {
  for (const auto& facts : cox::reducible_types) {
    CAPTURE(cox::to_string(facts.type));
    CHECK(cox::accumulate_type(facts.type) == facts.accumulate_type);
    CHECK(cox::can_reduce(facts.type) == (facts.type != ElementType::Bool));
    if (!cox::can_reduce(facts.type)) continue;
    const ElementType accumulated = *cox::accumulate_type(facts.type);
    CHECK(cox::element_size(accumulated) >= cox::element_size(facts.type));
    CHECK(cox::accumulate_type(accumulated) == accumulated);
    CHECK_NOTHROW(cox::require_reducible(facts.type, ReduceOperation::Max));
  }
  CHECK(cox::accumulate_type(ElementType::I8) == ElementType::I8);
  CHECK(cox::accumulate_type(ElementType::F8E5M2) == ElementType::F32);
  CHECK(cox::accumulate_type(ElementType::BF16) == ElementType::F32);
  CHECK(cox::accumulate_type(ElementType::F64) == ElementType::F64);
}

TEST_CASE("A type that cannot be reduced is refused, with the operation's name") {
  const auto refused = [] { cox::require_reducible(ElementType::Bool, ReduceOperation::Mean); };
  CHECK(kind_of<CollectiveError>(refused) == CollectiveError::Kind::Validation);
  CHECK(mentions(message_of(refused), {"bool", "mean"}));
}
