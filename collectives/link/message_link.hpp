#pragma once

#include <coxswain/collectives/leader/message_coder.hpp>
#include <coxswain/collectives/link/frame_link.hpp>

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace cox::detail::world {

/// A connection that carries messages of one type, in both directions. Bytes that are no such message end it. The
/// namespace of the type has `encode(message)`, which returns bytes, and `decode_into(message, bytes)`, which throws
/// MalformedMessage. Its functions are for the thread of its executor, except send().
template <class Type>
class MessageLink final : public FrameLink {
 public:
  using Message = Type;
  struct Handlers {
    std::function<void(Message)> received;
    /// As of FrameLink::Handlers.
    std::function<void(const std::string& why)> ended;
  };

  using FrameLink::FrameLink;

  /// As of FrameLink.
  void start(Handlers handlers) { FrameLink::start(decoding(std::move(handlers))); }
  void restart(Handlers handlers) { FrameLink::restart(decoding(std::move(handlers))); }
  /// As of FrameLink. Throws also MalformedMessage (it is too large).
  void send(const Message& message) { FrameLink::send(encode(message)); }
  /// Has the thread of the executor send them together.
  void send_later(std::span<const Message> messages) {
    std::vector<std::byte> frames;
    for (const Message& message : messages) append_frame(encode(message), frames);
    FrameLink::send_later(std::move(frames));
  }

 private:
  FrameLink::Handlers decoding(Handlers handlers) {
    return {.received =
                [this, received = std::move(handlers.received)](std::span<const std::byte> encoded) {
                  Message message;
                  try {
                    decode_into(message, encoded);
                  } catch (const MalformedMessage& malformed) {
                    return end(malformed.what());
                  }
                  received(std::move(message));
                },
            .ended = std::move(handlers.ended)};
  }
};

}  // namespace cox::detail::world
