#include <coxswain/tests/support/catch.hpp>

#include <coxswain/perf/harness/nccl_tests.hpp>

#include <cmath>
#include <string>

using cox::perf::find_nccl_tests_row;

namespace {

const std::string output = R"(# nThread 4 nGpus 1 minBytes 8 maxBytes 33554432
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
           8             2     float     sum      -1    12.25    0.00    0.00      0    12.07    0.00    0.00      3
    33554432       8388608     float     sum      -1    172.0  195.08  292.62    N/A    171.4  195.77  293.65    N/A
# Out of bounds values : 0 OK
)";

}  // namespace

TEST_CASE("A row of nccl-tests is found by its size, out of place and in place") {
  const auto small = find_nccl_tests_row(output, 8, false);
  REQUIRE(small);
  CHECK(small->microseconds == 12.25);
  CHECK(small->wrong == 0);
  CHECK(find_nccl_tests_row(output, 8, true)->wrong == 3);
  const auto large = find_nccl_tests_row(output, 33554432, true);
  REQUIRE(large);
  CHECK(large->microseconds == 171.4);
  CHECK(large->algbw == 195.77);
  CHECK(large->busbw == 293.65);
  CHECK(std::isnan(large->wrong));
}

TEST_CASE("A size that nccl-tests has not run has no row") {
  CHECK_FALSE(find_nccl_tests_row(output, 16, false));
  CHECK_FALSE(find_nccl_tests_row("", 8, false));
  CHECK_FALSE(find_nccl_tests_row("8 2 float sum -1 12.25\n", 8, false));
}
