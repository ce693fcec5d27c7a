#include <coxswain/tests/support/catch.hpp>

#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/runtime/error/failure_reports.hpp>
#include <coxswain/runtime/error/server_error.hpp>
#include <coxswain/runtime/error/stream_errors.hpp>

#include <cstdint>
#include <memory>
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
  REQUIRE(cox::describe(errors.remove_between(2, 6)) == "3");
  REQUIRE(errors.remove_between(2, 6) == nullptr);
  REQUIRE(texts(take(errors, 100)) == std::vector<std::string>{"2", "6"});
}

TEST_CASE("L7: no more than so many errors are kept, and the rest is counted") {
  StreamErrors errors;
  for (std::size_t i = 0; i < StreamErrors::max_failures + 3; ++i) errors.add(i, failure(std::to_string(i)));
  const auto taken = take(errors, 1000);
  REQUIRE(texts(taken).size() == StreamErrors::max_failures);
  REQUIRE(texts(taken).front() == "0");
  REQUIRE(cox::describe(taken).find("3 later failures were not kept") != std::string::npos);
  errors.add(1, failure("again"));
  REQUIRE(cox::describe(take(errors, 1000)).find("not kept") == std::string::npos);
}

namespace {

cox::detail::TakenError take_for_future(const std::shared_ptr<StreamErrors>& errors, std::uint64_t before) {
  return StreamErrors::take_for_future(errors, before, {}, std::source_location::current());
}
std::exception_ptr take_known(StreamErrors& errors) { return errors.take_known({}, std::source_location::current()); }

using Texts = std::vector<std::string>;

}  // namespace

TEST_CASE("L12: what a future has taken and not delivered is the stream's again, in its place") {
  const auto errors = std::make_shared<StreamErrors>();
  errors->add(2, failure("first"));
  errors->add(4, failure("second"));
  {
    const auto dropped = take_for_future(errors, 3);
    CHECK(texts(dropped.error) == Texts{"first"});
    CHECK(texts(errors->peek({}, std::source_location::current())) == Texts{"second"});
  }
  CHECK(texts(errors->peek({}, std::source_location::current())) == Texts{"first", "second"});
  {
    const auto delivered = take_for_future(errors, 3);
    delivered.receipt->delivered();
  }
  CHECK(texts(take(*errors, 100)) == Texts{"second"});
  {
    const auto dropped = StreamErrors::of_operation(errors, 7, failure("its own"));
  }
  CHECK(texts(take(*errors, 100)) == Texts{"its own"});
}

TEST_CASE("L12: failures within an open profile are not the stream's, but for work in between") {
  const auto errors = std::make_shared<StreamErrors>();
  errors->begin_profile(2);
  errors->add(1, failure("before"));
  errors->add(3, failure("within"));
  CHECK(texts(errors->peek({}, std::source_location::current())) == Texts{"before"});
  CHECK(texts(take_known(*errors)) == Texts{"before"});
  CHECK(texts(take(*errors, 4)) == Texts{"within"});
  errors->add(5, failure("within"));
  errors->bound_profile(2, 6);
  errors->add(7, failure("behind"));
  CHECK(texts(take_known(*errors)) == Texts{"behind"});
  {
    const auto of_profile = StreamErrors::take_for_profile(errors, 2, 6);
    CHECK(cox::describe(of_profile.error) == "within");
    errors->end_profile(2);
    CHECK(take_known(*errors) == nullptr);
  }
  CHECK(texts(take_known(*errors)) == Texts{"within"});  // the duration was dropped
}

TEST_CASE("L12: failures that were counted go with the profile that has the others") {
  const auto errors = std::make_shared<StreamErrors>();
  for (std::size_t i = 0; i < StreamErrors::max_failures + 36; ++i) errors->add(5, failure("within"));
  StreamErrors::take_for_profile(errors, 1, 10).receipt->delivered();
  errors->add(11, failure("one"));
  CHECK(cox::describe(take(*errors, 100)).find("not kept") == std::string::npos);
  for (std::size_t i = 0; i < StreamErrors::max_failures + 36; ++i) errors->add(5, failure("within"));
  CHECK(cox::describe(errors->remove_between(1, 10)) == "within");
  errors->add(11, failure("one"));
  CHECK(cox::describe(take(*errors, 100)).find("not kept") == std::string::npos);
}

TEST_CASE("L12: a helper's failure reaches each stream that called it once, or the helper's future") {
  const auto helper = std::make_shared<StreamErrors>();
  const auto first = std::make_shared<StreamErrors>();
  const auto second = std::make_shared<StreamErrors>();
  cox::detail::FailureReports reports;
  reports.add(first, 4);
  reports.fail(*helper, 1, failure("lost"));
  reports.add(second, 9);  // later, and is told all the same
  SECTION("the streams") {
    CHECK(texts(take(*first, 5)) == Texts{"lost"});
    CHECK(take(*first, 100) == nullptr);
    CHECK(take(*second, 9) == nullptr);
    CHECK(texts(take(*second, 10)) == Texts{"lost"});
    CHECK(take(*helper, 100) == nullptr);
  }
  SECTION("the future") {
    const auto delivered = take_for_future(helper, 100);
    CHECK(texts(delivered.error) == Texts{"lost"});
    delivered.receipt->delivered();
    CHECK(take(*first, 100) == nullptr);
    CHECK(take(*second, 100) == nullptr);
  }
  SECTION("a future that is dropped") {
    {
      const auto dropped = take_for_future(helper, 100);
    }
    CHECK(texts(take(*first, 100)) == Texts{"lost"});
    CHECK(texts(take(*second, 100)) == Texts{"lost"});
  }
  SECTION("the end of the process") {
    CHECK(texts(helper->take_remaining({}, std::source_location::current())) == Texts{"lost"});
    CHECK(first->take_remaining({}, std::source_location::current()) == nullptr);
    CHECK(second->take_remaining({}, std::source_location::current()) == nullptr);
  }
  static_cast<void>(take(*first, 100));
  static_cast<void>(take(*second, 100));
}
