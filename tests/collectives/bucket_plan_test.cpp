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
