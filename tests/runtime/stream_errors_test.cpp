#include <coxswain/tests/support/catch.hpp>

#include <coxswain/device_handle/task_error.hpp>
#include <coxswain/runtime/detail/stream_errors.hpp>
#include <coxswain/runtime/server_error.hpp>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

using cox::detail::StreamErrors;

namespace {

std::exception_ptr failure(const std::string& text) { return std::make_exception_ptr(std::runtime_error(text)); }

std::vector<std::string> texts(const std::exception_ptr& unhealthy) {
  std::vector<std::string> result;
  try {
    if (unhealthy) std::rethrow_exception(unhealthy);
  } catch (const cox::ServerError& error) {
    for (const auto& each : error.errors()) result.push_back(cox::describe(each));
  }
  return result;
}

std::exception_ptr take(StreamErrors& errors, std::uint64_t before) {
  return errors.take_before(before, {}, std::source_location::current());
}

}  // namespace

TEST_CASE("L12: errors are taken in the order of the stream, and only those before the one who asks") {
  StreamErrors errors;
  errors.add(5, failure("later"));
  errors.add(2, failure("first"));
  errors.add(3, failure("second"));
  REQUIRE(texts(errors.peek({}, std::source_location::current())) ==
          std::vector<std::string>{"first", "second", "later"});
  REQUIRE(texts(take(errors, 5)) == std::vector<std::string>{"first", "second"});
  REQUIRE_FALSE(errors.empty());
  REQUIRE(texts(take(errors, 6)) == std::vector<std::string>{"later"});
  REQUIRE(take(errors, 100) == nullptr);
  REQUIRE(errors.empty());
}

TEST_CASE("L12: errors that somebody else has are forgotten, and he is given the first of them") {
  StreamErrors errors;
  for (const std::uint64_t position : {6U, 5U, 3U, 2U}) errors.add(position, failure(std::to_string(position)));
  REQUIRE(cox::describe(errors.forget_between(2, 6)) == "3");
  REQUIRE(errors.forget_between(2, 6) == nullptr);
  REQUIRE(texts(take(errors, 100)) == std::vector<std::string>{"2", "6"});
}

TEST_CASE("L7: no more than so many errors are kept, and the rest is counted") {
  StreamErrors errors;
  for (std::size_t i = 0; i < StreamErrors::kept + 3; ++i) errors.add(i, failure(std::to_string(i)));
  const auto taken = take(errors, 1000);
  REQUIRE(texts(taken).size() == StreamErrors::kept);
  REQUIRE(texts(taken).front() == "0");
  REQUIRE(cox::describe(taken).find("3 later failures were not kept") != std::string::npos);
  errors.add(1, failure("again"));
  REQUIRE(cox::describe(take(errors, 1000)).find("not kept") == std::string::npos);
}
