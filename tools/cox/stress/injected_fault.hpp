#pragma once

#include <coxswain/tools/cox/stress/sequence.hpp>

#include <cstdint>
#include <stdexcept>
#include <string>

namespace cox::stress {

/// The exception that a task or kernel throws on purpose. It is tagged with client and sequence, so that a handler can
/// check whether it is the expected one.
class InjectedFault : public std::runtime_error {
 public:
  InjectedFault(std::uint32_t client, Sequence sequence)
      : std::runtime_error("injected fault of client " + std::to_string(client) + ", " + to_string(sequence)),
        client_(client),
        sequence_(sequence) {}

  [[nodiscard]] bool is(std::uint32_t client, Sequence sequence) const noexcept {
    return client_ == client && sequence_ == sequence;
  }

 private:
  std::uint32_t client_;
  Sequence sequence_;
};

}  // namespace cox::stress
