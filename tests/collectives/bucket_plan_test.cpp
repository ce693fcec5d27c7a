#include <coxswain/tests/support/catch.hpp>

#include <coxswain/collectives/communicator/bucket_plan.hpp>

#include <vector>

using namespace cox;

namespace {

using Members = std::vector<std::vector<std::size_t>>;

Members plan(const std::vector<std::size_t>& sizes, const BucketOptions& options) {
  std::vector<Gradient> gradients;
  for (const std::size_t bytes : sizes) gradients.push_back({.bytes = bytes});
  const BucketPlan plan(gradients, options);
  Members members;
  for (std::size_t bucket = 0; bucket < plan.buckets(); ++bucket) {
    members.emplace_back(plan.members(bucket).begin(), plan.members(bucket).end());
    for (const std::size_t index : plan.members(bucket)) CHECK(plan.bucket_of(index) == bucket);
  }
  return members;
}

}  // namespace

TEST_CASE("Buckets are filled from the last gradient to the first, and the first bucket is small") {
  const BucketOptions options{.bucket_bytes = 10, .first_bucket_bytes = 3};
  CHECK(plan({4, 4, 4, 4, 2, 2}, options) == Members{{5, 4}, {3, 2, 1}, {0}});
  CHECK(plan({1, 1, 1}, options) == Members{{2, 1, 0}});
  CHECK(plan({100, 100}, options) == Members{{1}, {0}});
  CHECK(plan({}, options).empty());
  CHECK(plan({0, 0, 5}, options) == Members{{2}, {1, 0}});
}

TEST_CASE("Buckets that own memory have one type each, and are in the order in which they become complete") {
  constexpr ElementType f = ElementType::F32;
  constexpr ElementType h = ElementType::BF16;
  const std::vector<Gradient> gradients{{8, f}, {400, h}, {8, f}, {400, h}, {4, f}, {300, h}, {4, f}};
  const BucketPlan plan(gradients, {.bucket_bytes = 500, .first_bucket_bytes = 300, .own_memory = true});
  const auto members = [&](std::size_t bucket) {
    return std::vector<std::size_t>(plan.members(bucket).begin(), plan.members(bucket).end());
  };
  REQUIRE(plan.buckets() == 3);
  CHECK(members(0) == std::vector<std::size_t>{5});           // full at the bytes of a first bucket
  CHECK(members(1) == std::vector<std::size_t>{3, 1});        // complete before the bucket of the other type
  CHECK(members(2) == std::vector<std::size_t>{6, 4, 2, 0});  // opened first
  for (std::size_t bucket = 0; bucket < plan.buckets(); ++bucket)
    for (const std::size_t index : plan.members(bucket)) CHECK(plan.bucket_of(index) == bucket);

  // Without own_memory, buckets have gradients of any type.
  CHECK(BucketPlan(gradients, {.bucket_bytes = 500, .first_bucket_bytes = 300}).members(0).size() == 2);
}

TEST_CASE("Views of buckets are aligned, in order and apart") {
  const std::vector<Gradient> gradients{{.bytes = 1}, {.bytes = 0}, {.bytes = 256}, {.bytes = 257}};
  const BucketPlan plan(gradients, {.bucket_bytes = 10'000, .first_bucket_bytes = 10'000, .own_memory = true});
  REQUIRE(plan.buckets() == 1);
  CHECK(plan.offset_of(3) == 0);
  CHECK(plan.offset_of(2) == 512);
  CHECK(plan.offset_of(1) == 768);
  CHECK(plan.offset_of(0) == 768);
  CHECK(plan.bucket_size(0) == 1024);
}
