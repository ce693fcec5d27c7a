#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/tensor/element_type.hpp>

#include <set>
#include <string>

TEST_CASE("Every element type has a size and a name of its own") {
  std::set<std::string_view> names;
  for (const auto& facts : cox::element_types) {
    REQUIRE(cox::element_size(facts.type) == facts.size);
    REQUIRE(cox::to_string(facts.type) == facts.name);
    names.insert(facts.name);
  }
  REQUIRE(names.size() == cox::element_types.size());
  REQUIRE(cox::element_size(cox::ElementType::BF16) == 2);
  REQUIRE(cox::element_size(cox::ElementType::F64) == 8);
}
