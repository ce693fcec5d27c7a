#pragma once

// What the tests of L14 on host devices share: a kernel that fails, and what its failure looks like to others.

#include <coxswain/device_handle/base/find_cause.hpp>
#include <coxswain/runtime/error/io_error.hpp>
#include <coxswain/runtime/error/launch_error.hpp>
#include <coxswain/servers/host/server/host_server.hpp>
#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/servers/contract/ranks.hpp>

#include <cstdint>
#include <exception>
#include <stdexcept>

namespace cox::test {

/// When a failure becomes known: before the operation that reads is queued, while it is, or after that.
enum class Moment : std::uint8_t { Before, Meanwhile, After };

[[noreturn]] inline void fail_as_it_should(const KernelContext&) { throw std::runtime_error("the first cause"); }

/// Began with a kernel that called fail_as_it_should().
inline bool is_of_kernel(const std::exception_ptr& error) {
  const auto* const launch = find_cause<LaunchError>(error, LaunchError::Kind::KernelFailed);
  return launch != nullptr && mentions(launch->what(), {"the first cause"});
}
/// As that, and is about memory which the kernel should have written, at first or second hand.
inline bool is_poisoned(const std::exception_ptr& error) {
  return find_cause<IoError>(error, IoError::Kind::Poisoned) != nullptr && is_of_kernel(error);
}

/// What the next wait of the stream and its collectives throws; null: nothing.
inline std::exception_ptr failure_of(const HostClient& client) {
  try {
    settle(client);
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}
/// What a read throws; null: nothing.
inline std::exception_ptr read_failure(const HostClient& client, const Handle& handle) {
  try {
    static_cast<void>(get_soon(client.read_async(std::vector<Handle>{handle})));
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

}  // namespace cox::test
