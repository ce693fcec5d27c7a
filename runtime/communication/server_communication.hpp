#pragma once

#include <concepts>

namespace cox {

/// What a server says about talking to the servers of other devices. Where `communication_enabled` is false, transfers
/// between its devices go through the host, and collectives are ServerError Unsupported.
template <class S>
concept ServerCommunication = requires {
  { S::communication_enabled } -> std::convertible_to<bool>;
  requires std::same_as<decltype(S::communication_enabled), const bool>;
};

}  // namespace cox
