#pragma once

#include <coxswain/collectives/sequencer/world_order.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace cox::detail {

/// Names an operation in the same way in all processes.
struct SharedOperation {
  SharedSequence sequence;
  std::uint64_t operation = 0;
};

/// What a process gives another one of one of its ranks in an operation: its input, or why it cannot take part.
struct RankPart {
  std::uint16_t place = 0;                       ///< of the rank in the operation
  std::string refusal = {};                      ///< Why the rank cannot take part; empty if it can.
  std::vector<std::span<const std::byte>> data;  ///< Of each request; empty: the other process needs nothing of it.
};

/// Moves the inputs of ranks of host devices between the processes of a world. Any thread.
class RankExchange {
 public:
  /// What another process says that it gives of one of its ranks.
  struct Announced {
    std::uint16_t place;
    bool is_refused;
    std::vector<std::uint64_t> bytes;  ///< by request; empty if it is refused
  };
  /// An operation of which this process has ranks. Its functions may be called by any thread, several at a time, and
  /// must not block.
  class Operation {
   public:
    enum class Answer : std::uint8_t {
      Accepted,
      Wrong,    ///< not what the operation expects: each rank of the process, with the sizes of all requests
      Aborted,  ///< No memory: the operation has been aborted.
    };
    /// A process gives the inputs of its ranks. If they are accepted, adds to `memory` where they go: a part for each
    /// input that has bytes, in their order. The memory stays valid until received().
    [[nodiscard]] virtual Answer accept(std::uint16_t process, const std::vector<Announced>& ranks,
                                        std::vector<std::span<std::byte>>& memory) noexcept = 0;
    /// All that the rank gives has arrived. Returns false if that is not what the operation expects.
    [[nodiscard]] virtual bool received(std::uint16_t place, const std::string& refusal) noexcept = 0;
    /// All parts of this process are sent: their memory is not read any more.
    virtual void sent() noexcept = 0;
    /// The other processes will not complete the operation. Parts that are not sent are not read any more.
    virtual void failed(const std::exception_ptr& why) noexcept = 0;

   protected:
    ~Operation() = default;
  };

  /// Expects the parts of the processes in `from`. Calls of `operation` may begin before this returns; each such call
  /// holds a reference. Throws std::bad_alloc.
  virtual void expect(const SharedOperation& name, const std::vector<std::uint16_t>& from,
                      const std::shared_ptr<Operation>& operation) = 0;
  /// What a process gets.
  struct Parcel {
    std::uint16_t process;
    std::vector<RankPart> parts;
  };
  /// Sends the parts; calls sent() when all are sent, or failed(). The operation must be expected. Once for each
  /// operation. Does not block; does not throw: if memory is short, it calls failed().
  virtual void send(const SharedOperation& name, std::vector<Parcel> parcels) noexcept = 0;
  /// The operation has failed in this process: tells the other processes, and discards what they send of it. After this
  /// returns, the memory of the parts is not read any more; a call of the operation that is in progress on the other
  /// thread may still end. Does nothing if the operation is not expected, or all its parts have arrived and been sent.
  /// May be called in a call of the operation.
  virtual void abort(const SharedOperation& name, const std::exception_ptr& why) noexcept = 0;

  /// That of the world that this process has joined; nullptr if there is none.
  [[nodiscard]] static RankExchange* of_process() noexcept;
  static void set_of_process(RankExchange* exchange) noexcept;

 protected:
  ~RankExchange() = default;
};

}  // namespace cox::detail
