#include <coxswain/tests/runtime/profile/ticks.hpp>
#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/profile/profile_duration.hpp>
#include <coxswain/runtime/profile/profile_error.hpp>

#include <boost/asio/use_future.hpp>

#include <chrono>
#include <memory>
#include <thread>

using namespace std::chrono_literals;
using cox::ProfileDuration;
using cox::ProfileError;
using cox::ProfileTicks;
using cox::TimingMethod;

namespace {

using Ticks = cox::Promise<ProfileTicks>;

Ticks make_promise() { return Ticks(std::make_shared<cox::CompletionThread>(cox::DeviceId{})); }

}  // namespace

TEST_CASE("A profile's duration is there when the device is done, once, with the clock that took it") {
  Ticks promise = make_promise();
  ProfileDuration duration(promise.future(), TimingMethod::Device);
  CHECK(duration.timing_method() == TimingMethod::Device);
  CHECK_FALSE(duration.ready());
  CHECK_FALSE(duration.wait_for(0ms));
  std::jthread device([promise = std::move(promise)]() mutable { promise.set_value(cox::test::took(15us)); });
  const ProfileTicks ticks = duration.get();
  CHECK(ticks == cox::test::took(15us));
  CHECK(ticks.duration() == 15us);
  CHECK_FALSE(duration.valid());
}

TEST_CASE("A profile that failed throws at get, and one whose device was closed says so") {
  Ticks promise = make_promise();
  ProfileDuration failed(promise.future(), TimingMethod::System);
  promise.set_error(std::make_exception_ptr(ProfileError(ProfileError::Kind::Launch, "void")));
  CHECK(failed.ready());
  CHECK(failed.wait_for(0ms));
  CHECK(cox::test::kind_of<ProfileError>([&] { (void)failed.get(); }) == ProfileError::Kind::Launch);
  ProfileDuration dropped(make_promise().future(), TimingMethod::System);
  CHECK(cox::test::kind_of<cox::CallError>([&] { (void)dropped.get(); }) == cox::CallError::Kind::Closed);
}

TEST_CASE("A profile's duration completes any token") {
  Ticks promise = make_promise();
  ProfileDuration duration(promise.future(), TimingMethod::System);
  auto result = duration.async_get(boost::asio::use_future);
  CHECK_FALSE(duration.valid());
  promise.set_value(cox::test::took(3ms));
  CHECK(result.get().duration() == 3ms);
}
