#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/tensor/copy_plan.hpp>
#include <coxswain/runtime/tensor/tensor_view.hpp>

#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>

using cox::canonical_strides;
using cox::Shape;
using cox::span_without_overlap;
using cox::Strides;

TEST_CASE("The span of a tensor reaches from its first to its last element") {
  CHECK(span_without_overlap({}, {}) == 1U);
  CHECK(span_without_overlap({2, 3, 5}, {15, 5, 1}) == 30U);
  CHECK(span_without_overlap({2, 3}, {8, 1}) == 11U);
  CHECK(span_without_overlap({3, 2}, {1, 3}) == 6U);  // transposed
  CHECK(span_without_overlap({4}, {3}) == 10U);       // every third element
  CHECK(span_without_overlap({1, 4}, {0, 1}) == 4U);  // the stride of extent 1 is not used
  CHECK(span_without_overlap({2, 0}, {0, 0}) == 0U);
}

TEST_CASE("Strides that are not provably free of overlap have no span") {
  CHECK(span_without_overlap({2}, {0}) == std::nullopt);
  CHECK(span_without_overlap({3, 2}, {1, 1}) == std::nullopt);
  CHECK(span_without_overlap({3, 3}, {2, 1}) == std::nullopt);
  CHECK(span_without_overlap({2, 2}, {SIZE_MAX, 1}) == std::nullopt);
  CHECK(span_without_overlap({3, 2}, {SIZE_MAX / 2, 1}) == std::nullopt);
}

TEST_CASE("No two elements share memory if there is a span, for all small tensors") {
  std::size_t accepted = 0;
  for (std::size_t bits = 0; bits < 4 * 4 * 4 * 8 * 8 * 8; ++bits) {
    const Shape shape{bits % 4, bits / 4 % 4, bits / 16 % 4};
    const Strides strides{bits / 64 % 8, bits / 512 % 8, bits / 4096};
    const auto span = span_without_overlap(shape, strides);
    if (!span) continue;
    ++accepted;
    std::set<std::size_t> offsets;
    for (std::size_t i = 0; i < shape[0]; ++i)
      for (std::size_t j = 0; j < shape[1]; ++j)
        for (std::size_t k = 0; k < shape[2]; ++k) offsets.insert(i * strides[0] + j * strides[1] + k * strides[2]);
    REQUIRE(offsets.size() == shape[0] * shape[1] * shape[2]);
    REQUIRE((offsets.empty() ? 0 : *offsets.rbegin() + 1) == *span);
  }
  CHECK(accepted > 1000);
}

TEST_CASE("Strides that no access uses do not keep a tensor from being copied") {
  CHECK(canonical_strides({}, {}) == Strides{});
  CHECK(canonical_strides({2, 3}, {8, 1}) == Strides{8, 1});
  CHECK(canonical_strides({1, 4}, {0, 1}) == Strides{4, 1});
  CHECK(canonical_strides({4, 1}, {3, 99}) == Strides{3, 1});
  CHECK(canonical_strides({2, 1, 1, 3}, {8, 77, 0, 1}) == Strides{8, 8, 8, 1});
  CHECK(canonical_strides({1, 1, 1}, {0, 5, 7}) == Strides{1, 1, 1});
  CHECK(canonical_strides({0, 3}, {0, 0}) == Strides{3, 1});
  const cox::Binding memory{cox::ManagedMemory::create({}, 100), 0, 0, {}};
  for (const auto& [shape, strides] : {std::pair<Shape, Strides>{{1, 4}, {0, 1}},
                                       {{4, 1}, {3, 99}},
                                       {{2, 1, 1, 3}, {8, 77, 0, 1}},
                                       {{1, 2, 3}, {0, 8, 1}}}) {
    const cox::CopyPlan plan = cox::plan_copy({memory, shape, canonical_strides(shape, strides), 4});
    CHECK(plan.size() == 4 * cox::element_count(shape).value());
  }
}
