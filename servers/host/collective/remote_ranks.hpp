#pragma once

#include <coxswain/collectives/reduction/in_process_collective.hpp>
#include <coxswain/collectives/world/rank_exchange.hpp>
#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/runtime/communication/collective_request.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace cox::detail {

/// The ranks of other processes in an operation of host devices. They arrive when their inputs have been received; then
/// this process computes the results of its own ranks from all inputs, in the order of ranks: the same bits as if all
/// ranks were its own. Each process sends the inputs of its ranks when the last of them has arrived.
///
/// A process gets what its ranks need: whole inputs for AllReduce and AllGather, the blocks of its ranks for
/// ReduceScatter and AllToAll, and the input of the root, or for the root, if there is one. So AllReduce moves the
/// input of each rank to each other process once.
class RemoteRanks final : public RankExchange::Operation {
 public:
  /// The operation. Any thread.
  class Owner {
   public:
    /// Where the input of a rank of another process is; before it arrives.
    virtual void set_input(std::size_t place, std::size_t request, const std::byte* input) noexcept = 0;
    /// A rank has arrived, or cannot take part.
    virtual void arrive(std::size_t place, const std::exception_ptr& refusal) noexcept = 0;
    [[nodiscard]] virtual bool has_arrived(std::size_t place) const noexcept = 0;
    /// The inputs of this process's ranks were sent.
    virtual void note_sent() noexcept = 0;
    virtual void abort(const std::exception_ptr& why) noexcept = 0;

   protected:
    ~Owner() = default;
  };

  /// `own`: of this process in the names of the world. Memory for the inputs of other processes is allocated when they
  /// begin to arrive, since many operations may be queued. Throws std::bad_alloc, CollectiveError Validation (too many
  /// requests).
  RemoteRanks(Owner& operation, SharedSequence sequence, const CollectiveRequests& requests,
              std::span<const DeviceId> places, std::uint16_t own, RankExchange& exchange);
  RemoteRanks(const RemoteRanks&) = delete;
  RemoteRanks& operator=(const RemoteRanks&) = delete;
  ~RemoteRanks() = default;

  [[nodiscard]] bool is_own(std::size_t place) const noexcept { return !remote_[place]; }
  [[nodiscard]] std::size_t own_ranks() const noexcept { return own_ranks_; }
  /// Expects the inputs of the other processes for operation `number` of the sequence. The first call counts. `self`
  /// keeps the operation alive. On an error, the operation is aborted.
  void expect(std::uint64_t number, const std::shared_ptr<void>& self) noexcept;
  /// Why a rank of this process cannot take part; before send().
  void set_refusal(std::size_t place, const std::exception_ptr& why) noexcept;
  /// Sends the inputs. All ranks of this process have arrived, and `buffers` stays valid until sent() or failed().
  void send(std::span<const RankBuffers> buffers) noexcept;
  /// The operation was aborted: tells the other processes.
  void abort(const std::exception_ptr& why) noexcept;

  [[nodiscard]] Answer accept(std::uint16_t process, const std::vector<RankExchange::Announced>& ranks,
                              std::vector<std::span<std::byte>>& memory) noexcept override;
  [[nodiscard]] bool received(std::uint16_t place, const std::string& refusal) noexcept override;
  void sent() noexcept override;
  void failed(const std::exception_ptr& why) noexcept override;

 private:
  struct Part {
    std::size_t first = 0;
    std::size_t bytes = 0;
  };
  [[nodiscard]] bool expects(std::uint16_t process, const std::vector<RankExchange::Announced>& ranks) const;
  [[nodiscard]] Part part_of(const CollectiveRequest& request, std::size_t place, std::uint16_t process) const noexcept;
  [[nodiscard]] std::size_t input_bytes(const CollectiveRequest& request) const noexcept;

  Owner& operation_;
  RankExchange& exchange_;
  const CollectiveRequests& requests_;
  const std::span<const DeviceId> places_;
  const std::uint16_t own_;
  SharedOperation name_;
  std::vector<bool> remote_;  // by place
  std::size_t own_ranks_ = 0;
  std::vector<std::uint16_t> others_;                 // processes
  std::vector<std::unique_ptr<std::byte[]>> inputs_;  // by request, then place
  std::vector<std::unique_ptr<std::byte[]>> packed_;  // of rows that are sent
  std::vector<RankExchange::Parcel> parcels_;
  std::once_flag expected_;
};

}  // namespace cox::detail
