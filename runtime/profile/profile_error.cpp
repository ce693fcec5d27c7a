#include <coxswain/runtime/profile/profile_error.hpp>

#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/runtime/error/io_error.hpp>
#include <coxswain/runtime/error/launch_error.hpp>
#include <coxswain/runtime/error/server_error.hpp>

#include <string>

namespace cox {
namespace {

struct Failure {
  ProfileError::Kind kind;
  std::exception_ptr cause;
};

Failure wrapped(ServerError::Kind kind, const std::exception_ptr& error, std::source_location site) {
  return {ProfileError::Kind::Server, std::make_exception_ptr(ServerError(kind, describe(error), site, error))};
}

// Classifies `error`. If it is a ServerError whose first cause is a LaunchError, the result is that LaunchError.
Failure classify(const std::exception_ptr& error, std::source_location site) {
  try {
    std::rethrow_exception(error);
  } catch (const LaunchError&) {
    return {ProfileError::Kind::Launch, error};
  } catch (const ServerError& server) {
    if (server.cause() != nullptr) {
      if (Failure inner = classify(server.cause(), site); inner.kind == ProfileError::Kind::Launch) return inner;
    }
    return {ProfileError::Kind::Server, error};
  } catch (const IoError&) {
    return wrapped(ServerError::Kind::Io, error, site);
  } catch (const ProfileError&) {
    return wrapped(ServerError::Kind::Profile, error, site);
  } catch (...) {
    return wrapped(ServerError::Kind::Generic, error, site);
  }
}

}  // namespace

ProfileError profile_failure(const std::exception_ptr& error, const Location& location, std::source_location site) {
  Failure failure = classify(error, site);
  return {failure.kind, "the profile on " + location.to_string() + " is void: " + describe_cause(error), site,
          std::move(failure.cause)};
}

}  // namespace cox
