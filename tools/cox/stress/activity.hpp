#pragma once

#include <coxswain/tools/cox/stress/operation.hpp>

#include <atomic>
#include <cstdint>

namespace cox::stress {

/// The current state of one client, for the monitor. Written by the client's thread. Relaxed: no order is needed.
struct alignas(64) Activity {
  std::atomic<std::uint64_t> operations{0};  ///< completed
  std::atomic<std::uint64_t> faults{0};      ///< of these, with an injected fault
  std::atomic<Operation> operation{Operation::Submit};
  std::atomic<std::uint32_t> device{0};  ///< Index.
  std::atomic<bool> finished{false};
};

}  // namespace cox::stress
