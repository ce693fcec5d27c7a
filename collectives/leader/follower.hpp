#pragma once

#include <coxswain/collectives/leader/world_message.hpp>
#include <coxswain/collectives/sequencer/sequencer.hpp>
#include <coxswain/collectives/sequencer/world_order.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>

#include <chrono>
#include <exception>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace cox::detail::world {

/// Translates the calls of a sequencer into messages to the leader, and the leader's messages into calls of the
/// sequencer.
class Follower final : public WorldOrder {
 public:
  /// `send` sends messages to the leader, which it may move from. It is called with the sequencer's lock held, but for
  /// answers to questions, must keep the order of the calls, and must neither throw nor block. `fail` is called if a
  /// message cannot be made for want of memory: this process must leave the world soon; it must not allocate.
  /// `sequencer` must outlive the object.
  Follower(Sequencer& sequencer, std::function<void(std::span<Message>)> send, std::function<void()> fail);

  void open(CommunicatorNumber number, const SharedSequence& sequence,
            std::chrono::milliseconds timeout) noexcept override;
  void ask(const CollectiveId& operation, const CollectiveRequests& requests,
           const CollectiveDependencies& awaited) noexcept override;
  void refuse(const CollectiveId& operation, const std::exception_ptr& why) noexcept override;
  void end(const CollectiveId& from, const std::exception_ptr& why) noexcept override;
  void completed(const CollectiveId& last) noexcept override;
  void close(CommunicatorNumber number) noexcept override;
  void begin_batch() noexcept override { batches_ = true; }
  void end_batch() noexcept override;

  /// Passes a message of the leader to the sequencer; ignores messages that are not for it. One thread at a time; may
  /// call launches. Returns false if the leader has released an operation that this process has not
  /// submitted.
  [[nodiscard]] bool handle(const Message& message);

 private:
  [[nodiscard]] const std::string& description_of(const CollectiveRequests& requests);
  void send(Message message);

  Sequencer& sequencer_;
  // With the sequencer's lock held: what an operation that repeats the last one need not format again.
  std::optional<CollectiveRequest> last_;
  std::string description_;
  // With the sequencer's lock held: whether a batch has begun, and what end_batch() will send.
  bool batches_ = false;
  std::vector<Message> batch_;
  const std::function<void(std::span<Message>)> send_;
  const std::function<void()> fail_;
};

[[nodiscard]] Direction direction_of(const SharedSequence& sequence) noexcept;
/// The kind of the first CollectiveError among the error and its causes; Aborted if there is none. An abort because a
/// process is gone or silent has that kind.
[[nodiscard]] CollectiveError::Kind kind_of(const std::exception_ptr& why) noexcept;
/// A CollectiveError of that kind; std::bad_alloc if there is no memory for it.
[[nodiscard]] std::exception_ptr collective_error(CollectiveError::Kind kind, const std::string& text) noexcept;

}  // namespace cox::detail::world
