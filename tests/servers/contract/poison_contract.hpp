#pragma once

// What the tests of L14 share that are the same on all kinds of devices: an operation that fails when it is its turn,
// at the moment that the test chooses, and what its failure looks like to others.

#include <coxswain/device_handle/base/find_cause.hpp>
#include <coxswain/runtime/error/io_error.hpp>
#include <coxswain/runtime/error/launch_error.hpp>
#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/servers/contract/compute_backend.hpp>
#include <coxswain/tests/servers/contract/ranks.hpp>

#include <cstdint>
#include <exception>
#include <thread>
#include <vector>

namespace cox::test {

/// When a failure becomes known: before the operation that reads is queued, while it is, or after that.
enum class FailureMoment : std::uint8_t { Before, Meanwhile, After };

/// What the next wait of the stream and its collectives throws; null: nothing.
template <class Client>
std::exception_ptr next_failure(const Client& client) {
  try {
    settle(client);
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}
/// What a read throws; null: nothing.
template <class Client>
std::exception_ptr failure_of_read(const Client& client, const Handle& handle) {
  try {
    static_cast<void>(get_soon(client.read_async(std::vector<Handle>{handle})));
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

/// Began with a kernel of Backend::fail_on().
template <class Backend>
bool is_late_failure(const std::exception_ptr& error) {
  const auto* const launch = find_cause<LaunchError>(error, Backend::late_kind);
  return launch != nullptr && mentions(launch->what(), {Backend::late_text});
}
/// As that, and is about memory which the kernel should have written, at first or second hand.
template <class Backend>
bool is_poisoned_by_late_failure(const std::exception_ptr& error) {
  return find_cause<IoError>(error, IoError::Kind::Poisoned) != nullptr && is_late_failure<Backend>(error);
}

/// A kernel of the client's stream fails that should have written `memory`, at that moment of `queue()`. Its failure is
/// still to be taken, but where it is known before.
template <class Backend, class Queue>
void fail_around(const typename Backend::Client& client, const Handle& memory, FailureMoment moment, Queue&& queue) {
  typename Backend::Gate gate(client);
  launch(client, gate.hold());
  launch(client, Backend::fail_on(client, memory));
  gate.wait_until_entered();
  std::thread opener;
  if (moment == FailureMoment::Before) {
    gate.open();
    REQUIRE(is_late_failure<Backend>(next_failure(client)));
  } else if (moment == FailureMoment::Meanwhile) {
    opener = std::thread([&] { gate.open(); });
  }
  queue();
  if (opener.joinable()) opener.join();
  if (moment == FailureMoment::After) gate.open();
}

}  // namespace cox::test
