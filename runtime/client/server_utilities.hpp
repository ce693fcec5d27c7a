#pragma once

#include <coxswain/runtime/async/completion_thread.hpp>
#include <coxswain/runtime/base/device_properties.hpp>
#include <coxswain/runtime/base/execution_mode.hpp>
#include <coxswain/runtime/communication/pending_collectives.hpp>
#include <coxswain/runtime/handle/managed_memory.hpp>
#include <coxswain/runtime/profile/profiler.hpp>

#include <memory>

namespace cox {

/// Facts about a server of any kind that clients read without a call to the device thread. Created once by the server;
/// constant except for the data that the profiler collects.
struct ServerFacts {
  /// The device, and the server's generation on it.
  MemoryOwner owner;
  /// Counts the queued calls of its clients that may submit collectives.
  PendingCollectives& pending_collectives = PendingCollectives::for_device(owner.device);
  DeviceProperties properties;
  /// Runs the completion handlers of the device's futures that have no executor of their own.
  std::shared_ptr<CompletionThread> completion_thread;
  /// How launches run that request to be unchecked.
  CheckMode check_mode = CheckMode::Auto;
  /// Collects the durations of launches, if its level requires that.
  mutable Profiler profiler{ProfileLevel::Disabled};
};

/// The facts that are common to all servers, with those that are specific to the kind of server.
template <class Server>
struct ServerUtilities : ServerFacts {
  typename Server::Info info;
  typename Server::LayoutPolicy layout_policy;
};

}  // namespace cox
