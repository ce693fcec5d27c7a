#pragma once

#include <coxswain/collectives/leader/world_message.hpp>
#include <coxswain/collectives/link/frame_link.hpp>
#include <coxswain/collectives/link/message_link.hpp>

#include <cstddef>
#include <span>
#include <vector>

namespace cox::detail::world {

/// For MessageLink.
inline void decode_into(Message& message, std::span<const std::byte> encoded) { message = decode(encoded); }

/// A connection between a process and the leader.
using ControlLink = MessageLink<Message>;

/// The message as it is sent: its length, then its bytes.
[[nodiscard]] inline std::vector<std::byte> frame_of(const Message& message) {
  return frame_of(std::span<const std::byte>(encode(message)));
}

}  // namespace cox::detail::world
