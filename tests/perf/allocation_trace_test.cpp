#include <coxswain/perf/trace/allocation_trace.hpp>
#include <coxswain/perf/trace/training_step.hpp>
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/temporary_file.hpp>

#include <stdexcept>
#include <string>
#include <vector>

using cox::perf::AllocationTrace;
using cox::perf::read_trace;
using cox::perf::training_steps;
using cox::test::TemporaryFile;

namespace {

std::string refusal_of(const std::string& text) {
  const TemporaryFile file(text);
  try {
    static_cast<void>(read_trace(file.path()));
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("A trace is read as it was written, and numbers are used again") {
  const TemporaryFile file("a 7 100 0\na 9 50 2\nf 7\na 7 25 1\n");
  const AllocationTrace trace = read_trace(file.path());
  CHECK(trace.allocations == 3);
  CHECK(trace.streams == 3);
  CHECK(trace.events.size() == 4);
  CHECK(trace.events[2].allocation == 0);
  CHECK(trace.events[3].allocation == 2);
  CHECK(trace.peak() == 150);
}

TEST_CASE("A damaged trace is refused with its line") {
  using Catch::Matchers::ContainsSubstring;
  CHECK_THAT(refusal_of("a 1 10 0\nfree it\n"), ContainsSubstring(":2:"));
  CHECK_THAT(refusal_of("f 3\n"), ContainsSubstring(":1:"));
  CHECK_THAT(refusal_of("a 1 10 0\na 1 10 0\n"), ContainsSubstring(":2:"));
  CHECK_THAT(refusal_of("a 1 ten 0\n"), ContainsSubstring(":1:"));
  CHECK_THROWS_AS(read_trace("/no/such/trace"), std::runtime_error);
}

TEST_CASE("Training steps free all they allocate but weights, gradients and optimiser state") {
  const AllocationTrace one = training_steps({.steps = 1});
  const AllocationTrace many = training_steps({.steps = 5});
  const auto alive = [](const AllocationTrace& trace) {
    std::size_t count = 0;
    for (const auto& event : trace.events) count += event.bytes != 0 ? 1U : ~std::size_t{0};
    return count;
  };
  CHECK(alive(one) == alive(many));
  CHECK(many.allocations > 4 * (one.allocations - alive(one)));
}
