#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/runtime/error/io_error.hpp>
#include <coxswain/runtime/error/launch_error.hpp>
#include <coxswain/runtime/error/server_error.hpp>
#include <coxswain/runtime/profile/open_profiles.hpp>
#include <coxswain/runtime/profile/profile_error.hpp>

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

using cox::OpenProfiles;
using cox::ProfileError;
using cox::ProfilingToken;
using cox::test::kind_of;
using cox::test::message_of;

namespace {

const cox::Location place{{.type = 0, .index = 1}, cox::StreamId{7}};

std::exception_ptr launch_error() {
  return std::make_exception_ptr(cox::LaunchError(cox::LaunchError::Kind::KernelFailed, "the kernel threw"));
}

std::exception_ptr unhealthy(std::exception_ptr first) {
  return std::make_exception_ptr(
      cox::ServerError::unhealthy(place, {std::move(first)}, 0, std::source_location::current()));
}

// Where the profile began; throws what it ends with if it is void.
template <class Position>
Position close(OpenProfiles<Position>& profiles, ProfilingToken token) {
  auto ended = profiles.end(token);
  if (ended.failure != nullptr) throw profile_failure(ended.failure, place, std::source_location::current());
  return std::move(ended.position);
}

// What a profile ends with during which the stream failed with `error`.
ProfileError failed_close(const std::exception_ptr& error) {
  OpenProfiles<int> profiles(place);
  const ProfilingToken token = profiles.open(1);
  profiles.mark_all(error);
  try {
    (void)close(profiles, token);
  } catch (const ProfileError& failure) {
    CHECK(profiles.empty());
    return failure;
  }
  FAIL("a void profile gave a result");
  throw std::logic_error("unreachable");
}

template <class E>
auto cause_kind(const ProfileError& error) {
  return kind_of<E>([&] { std::rethrow_exception(error.cause()); });
}

}  // namespace

TEST_CASE("Profiles of a stream end in any order, and each gives where it began") {
  OpenProfiles<std::unique_ptr<int>> profiles(place);
  std::vector<ProfilingToken> tokens;
  for (int i = 0; i < 4; ++i) tokens.push_back(profiles.open(std::make_unique<int>(i)));
  REQUIRE(profiles.size() == 4);
  for (const std::size_t i : {1U, 3U, 0U, 2U})  // overlapping, inner, outer
    REQUIRE(*close(profiles, tokens[i]) == static_cast<int>(i));
  REQUIRE(profiles.empty());
}

TEST_CASE("No two profiles have the same token, on whatever stream, so that none ends another stream's") {
  OpenProfiles<int> profiles(place);
  OpenProfiles<int> other({place.device, cox::StreamId{8}});
  const ProfilingToken mine = profiles.open(1);
  const ProfilingToken foreign = other.open(2);
  REQUIRE(mine != foreign);
  REQUIRE(mine != ProfilingToken{});
  REQUIRE(kind_of<ProfileError>([&] { (void)close(profiles, foreign); }) == ProfileError::Kind::NotRegistered);
  REQUIRE(close(other, foreign) == 2);
  REQUIRE(close(profiles, mine) == 1);
}

TEST_CASE("A profile that never began or has ended is not registered, and the others stay") {
  OpenProfiles<int> profiles(place);
  const ProfilingToken token = profiles.open(1);
  const ProfilingToken ended = profiles.open(2);
  REQUIRE(close(profiles, ended) == 2);
  REQUIRE(kind_of<ProfileError>([&] { (void)close(profiles, ended); }) == ProfileError::Kind::NotRegistered);
  REQUIRE(kind_of<ProfileError>([&] { (void)close(profiles, {}); }) == ProfileError::Kind::NotRegistered);
  REQUIRE(message_of([&] { (void)close(profiles, ended); }) ==
          "profile " + std::to_string(ended.value) +
              " is not open on host:1, stream 7: it was not begun on this stream, or has already ended");
  REQUIRE(close(profiles, token) == 1);
}

TEST_CASE("A failure of the stream voids the profiles that are open then, and no other") {
  OpenProfiles<int> profiles(place);
  const ProfilingToken ended = profiles.open(1);
  const ProfilingToken first = profiles.open(2);
  const ProfilingToken second = profiles.open(3);
  REQUIRE(close(profiles, ended) == 1);
  profiles.mark_all(launch_error());
  profiles.mark_all(std::make_exception_ptr(cox::ServerError(cox::ServerError::Kind::Generic, "later")));
  const ProfilingToken later = profiles.open(4);
  for (const ProfilingToken token : {first, second}) {
    REQUIRE(kind_of<ProfileError>([&] { (void)close(profiles, token); }) == ProfileError::Kind::Launch);
    REQUIRE(kind_of<ProfileError>([&] { (void)close(profiles, token); }) == ProfileError::Kind::NotRegistered);
  }
  REQUIRE(close(profiles, later) == 4);
}

TEST_CASE("A profile can be ended for both, where it began and what became of it") {
  OpenProfiles<int> profiles(place);
  const ProfilingToken fine = profiles.open(1);
  const ProfilingToken failed = profiles.open(2);
  const auto completed = profiles.end(fine);
  REQUIRE(completed.position == 1);
  REQUIRE(completed.failure == nullptr);
  const auto error = launch_error();
  profiles.mark_all(error);
  const auto failure = profiles.end(failed);
  REQUIRE(failure.position == 2);
  REQUIRE(failure.failure == error);
  REQUIRE(kind_of<ProfileError>([&] { (void)profiles.end(failed); }) == ProfileError::Kind::NotRegistered);
}

TEST_CASE("A void profile tells a failed launch from a failed server, and keeps the cause") {
  for (const auto& error : {launch_error(), unhealthy(launch_error())}) {
    const ProfileError failure = failed_close(error);
    CHECK(failure.kind() == ProfileError::Kind::Launch);
    CHECK(cause_kind<cox::LaunchError>(failure) == cox::LaunchError::Kind::KernelFailed);
    CHECK(std::string(failure.what()) == "the profile on host:1, stream 7 is void: " + cox::describe(error));
  }
  const auto io = std::make_exception_ptr(cox::IoError(cox::IoError::Kind::NotFound, "no such handle"));
  const ProfileError of_server = failed_close(unhealthy(io));
  CHECK(of_server.kind() == ProfileError::Kind::Server);
  CHECK(cause_kind<cox::ServerError>(of_server) == cox::ServerError::Kind::Unhealthy);
}

TEST_CASE("Whatever else voids a profile comes as the cause of a ServerError") {
  const auto kind = [](const std::exception_ptr& error) {
    const ProfileError failure = failed_close(error);
    CHECK(failure.kind() == ProfileError::Kind::Server);
    try {
      std::rethrow_exception(failure.cause());
    } catch (const cox::ServerError& server) {
      CHECK(server.cause() == error);
    }
    return cause_kind<cox::ServerError>(failure);
  };
  using Kind = cox::ServerError::Kind;
  CHECK(kind(std::make_exception_ptr(cox::IoError(cox::IoError::Kind::NotFound, "io"))) == Kind::Io);
  CHECK(kind(std::make_exception_ptr(ProfileError(ProfileError::Kind::Unknown, "profile"))) == Kind::Profile);
  CHECK(kind(std::make_exception_ptr(std::runtime_error("boom"))) == Kind::Generic);
}

TEST_CASE("L7: a stream has a bounded number of open profiles") {
  OpenProfiles<int> profiles(place, 2);
  const ProfilingToken token = profiles.open(1);
  (void)profiles.open(2);
  REQUIRE(kind_of<ProfileError>([&] { (void)profiles.open(3); }) == ProfileError::Kind::Unknown);
  REQUIRE(profiles.size() == 2);
  REQUIRE(close(profiles, token) == 1);
  (void)profiles.open(3);
}
