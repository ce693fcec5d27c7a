#pragma once

#include <coxswain/collectives/sequencer/world_order.hpp>
#include <coxswain/device_handle/base/unique_function.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>

namespace cox::detail {

/// Messages between the processes of a world about their NCCL communicators, by way of the leader. Any thread.
class NcclExchange {
 public:
  /// Sends an encoded NcclCreationPlan to the other processes of the communicator. Throws std::bad_alloc.
  virtual void share_plan(const SharedCommunicator& communicator, std::span<const std::byte> plan) = 0;
  /// The operation has failed in this process, or will give results that are not valid: the other processes must mark
  /// it, and what depends on it, as failed (L14). `operation` 0: all operations of the communicator that have not
  /// completed, because this process aborts NCCL there. Calls `noted` when all other processes have done so, or are
  /// gone, or the world is lost: NCCL must not let the operation complete before that. Does not block; `noted` must not
  /// block.
  virtual void mark(const SharedSequence& sequence, std::uint64_t operation, const std::exception_ptr& why,
                    UniqueFunction<void()> noted) noexcept = 0;

  /// That of the world that this process has joined; nullptr if there is none.
  [[nodiscard]] static NcclExchange* of_process() noexcept;
  static void set_of_process(NcclExchange* exchange) noexcept;

 protected:
  ~NcclExchange() = default;
};

/// Counts the marks that the calling thread sends by send_mark() while the object exists, until all processes have
/// noted them. Objects on one thread may be nested: the marks of the inner one count for the outer one, too. Does not
/// allocate unless a mark is sent.
class MarkScope {
 public:
  MarkScope() noexcept;
  MarkScope(const MarkScope&) = delete;
  MarkScope& operator=(const MarkScope&) = delete;
  ~MarkScope();

  /// Calls `then`, on any thread, when the marks that were sent so far have been noted: at once if there are none. Call
  /// it once at most.
  void when_noted(UniqueFunction<void()> then) noexcept;

  /// Calls NcclExchange::mark() of the process, if it has joined a world, and counts the mark for the scopes of this
  /// thread.
  static void send_mark(const SharedSequence& sequence, std::uint64_t operation,
                        const std::exception_ptr& why) noexcept;

 private:
  struct Count {
    std::atomic<std::size_t> left{1};  // marks and inner scopes that are not noted, and the scope itself
    UniqueFunction<void()> then;       // set before the scope releases its share
    std::shared_ptr<Count> outer;
  };
  static void count_down(std::shared_ptr<Count> count) noexcept;
  [[nodiscard]] const std::shared_ptr<Count>& count();

  std::shared_ptr<Count> count_;  // null until a mark is sent
  MarkScope* const outer_;
};

}  // namespace cox::detail
