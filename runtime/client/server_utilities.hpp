#pragma once

#include <coxswain/runtime/async/completion_thread.hpp>
#include <coxswain/runtime/base/device_properties.hpp>
#include <coxswain/runtime/communication/pending_collectives.hpp>
#include <coxswain/runtime/config/check_mode.hpp>
#include <coxswain/runtime/handle/managed_memory.hpp>
#include <coxswain/runtime/profile/profiler.hpp>

#include <memory>

namespace cox {

/// The facts about a server, whatever its kind, that clients read without asking the device. Made once by the server;
/// all but what the profiler has collected never changes.
struct ServerFacts {
  /// The device, and the server's generation on it.
  MemoryOwner owner;
  /// Counts the calls of its clients that may ask for collectives.
  PendingCollectives& pending_collectives = PendingCollectives::for_device(owner.device);
  DeviceProperties properties;
  /// Runs the completion handlers of the device's futures that have no executor of their own.
  std::shared_ptr<CompletionThread> completion_thread;
  /// What becomes of launches that ask to be unchecked.
  CheckMode check_mode = CheckMode::Auto;
  /// Collects how long launches take, if that is wanted.
  mutable Profiler profiler{ProfileLevel::Disabled};
};

/// With those of its kind.
template <class Server>
struct ServerUtilities : ServerFacts {
  typename Server::Info info;
  typename Server::LayoutPolicy layout_policy;
};

}  // namespace cox
