#pragma once

#include <coxswain/collectives/nccl/nccl.hpp>
#include <coxswain/collectives/nccl/nccl_device_resources.hpp>

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace cox::detail {

/// What the process of rank 0 decides for the creation in all processes.
struct NcclCreationPlan {
  static constexpr std::size_t encoded_size = sizeof(NcclUniqueId) + 1;
  using Encoded = std::array<std::byte, encoded_size>;

  NcclUniqueId id;
  int ctas = 0;  ///< of NCCL's kernels, at most 64; 0: as many as NCCL chooses. NCCL needs the same in all processes.

  [[nodiscard]] Encoded encode() const noexcept;
  /// Nothing if the bytes are no plan.
  [[nodiscard]] static std::optional<NcclCreationPlan> decode(std::span<const std::byte> bytes) noexcept;
};

/// Creates NCCL's communicators of the ranks of this process in a communicator of several processes. NCCL cannot end a
/// blocking creation whose peer is gone, but a launch on a non-blocking communicator takes several times as long. So
/// the communicators are created non-blocking (the parents), and then split into blocking ones with the same ranks (the
/// children), on which all operations are launched. The parents have a single CTA: memory of the device is allocated
/// for each. NCCL does not report that a peer process is gone: another thread must call cancel() then. When the
/// communicators are there, the processes exchange by them what they need to share memory (PeerMemoryExchange).
class NcclCreation {
 public:
  /// NCCL's communicators of a rank.
  struct Comms {
    NcclComm parent = nullptr;
    NcclComm child = nullptr;
  };

  /// `ranks`: those of this process, as `opened` counts them, by their numbers in the communicator. `name`: in NCCL's
  /// log. NCCL keeps the pointer: it must be valid as long as the communicators exist.
  NcclCreation(std::vector<int> ranks, std::size_t world_size, const char* name,
               std::shared_ptr<NcclDeviceResources> opened);
  NcclCreation(const NcclCreation&) = delete;
  NcclCreation& operator=(const NcclCreation&) = delete;
  /// Calls abort().
  ~NcclCreation() { abort(); }

  /// Why the NCCL of the process cannot do this; empty if it can.
  [[nodiscard]] static std::string why_not();
  /// For one of the processes, whose ncclUniqueId all use. Throws CollectiveError Backend.
  [[nodiscard]] static NcclUniqueId make_id();
  /// Blocks until all processes have created their communicators, all ranks are connected, and all processes have
  /// agreed whether they share memory. Throws the cause of cancel(), CollectiveError Backend.
  void create(const NcclCreationPlan& plan);
  /// create() throws this cause soon, also if it is called later. The first cause is kept. Any thread; may block for
  /// the time that ncclCommRevoke takes.
  void cancel(const std::exception_ptr& cause) noexcept;
  /// Aborts the communicators that were created and not taken. After create() has thrown, on the thread that called it.
  /// Idempotent.
  void abort() noexcept;
  /// By rank. After create() has returned; or has thrown, to leak the communicators.
  [[nodiscard]] std::vector<Comms> take() noexcept;

 private:
  // What NCCL has passed on unchanged has its checksum.
  struct CheckedMessage {
    std::uint64_t checksum = 0;  // not that of a message of zeros
    PeerMemoryExchange::Message message{};
  };

  template <class IsDone>
  void wait_until(const IsDone& is_done);
  void settle_parents();
  void share_memory();
  [[nodiscard]] std::vector<PeerMemoryExchange::Message> exchange_messages(PeerMemoryExchange& exchange);
  void reduce_scratch(std::size_t bytes);
  [[noreturn]] void throw_wrong_data();
  [[nodiscard]] bool has_settled(NcclComm comm) const;
  [[nodiscard]] std::vector<NcclComm> children() const;

  const std::vector<int> ranks_;
  const std::size_t world_size_;
  const char* const name_;
  const std::shared_ptr<NcclDeviceResources> opened_;
  std::vector<Comms> comms_;  // NCCL writes a child until its parent has settled
  std::mutex mutex_;
  std::condition_variable cancelled_;
  std::exception_ptr cause_;         // guarded by mutex_, like revocable_
  std::vector<NcclComm> revocable_;  // the children, while create() may wait in them
  // What each rank of this process sends.
  std::vector<PeerMemoryExchange::Message> messages_;
  // As it is copied to the devices, which may go on when create() throws.
  std::vector<std::vector<CheckedMessage>> sent_;
};

}  // namespace cox::detail
