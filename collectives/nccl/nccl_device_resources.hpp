#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

struct CUstream_st;  // what a CUstream and a cudaStream_t point to

namespace cox {

/// How the ranks of several processes get access to memory of each other, so that kernels of ours can do small
/// collectives among them. NcclCreation calls the functions in this order, on one thread, while no operation is
/// launched. If a process cannot take part, its message or the value of advance() has that, and no process shares
/// memory. Ranks are those of this process.
class PeerMemoryExchange {
 public:
  /// From each rank to all others.
  static constexpr std::size_t message_size = 128;
  using Message = std::array<std::byte, message_size>;

  PeerMemoryExchange() = default;
  PeerMemoryExchange(const PeerMemoryExchange&) = delete;
  PeerMemoryExchange& operator=(const PeerMemoryExchange&) = delete;
  virtual ~PeerMemoryExchange() = default;

  [[nodiscard]] virtual Message message(std::size_t rank) noexcept = 0;
  /// `messages`: of all ranks of the communicator, in their order. Returns whether memory is going to be shared, which
  /// follows from them alone: so it is the same in all processes.
  [[nodiscard]] virtual bool begin(const std::vector<Message>& messages) noexcept = 0;
  /// Continues without waiting for other processes. std::nullopt while it has to wait for them; then whether this
  /// process has access to the memory of all ranks.
  [[nodiscard]] virtual std::optional<bool> advance() noexcept = 0;
  /// `all_have_access`: whether all processes do.
  virtual void end(bool all_have_access) noexcept = 0;

  /// Copies to, and from, the beginning of NcclDeviceResources::scratch(rank). write() is in the order of stream(rank),
  /// and needs the bytes until is_idle(rank); read() blocks. Both throw the errors of the driver.
  virtual void write(std::size_t rank, std::span<const std::byte> bytes) const = 0;
  virtual void read(std::size_t rank, std::span<std::byte> bytes) const = 0;
};

/// The device resources of an NcclCommunicator: the contexts of its devices, and what it needs there in addition to
/// NCCL.
class NcclDeviceResources {
 public:
  NcclDeviceResources() = default;
  NcclDeviceResources(const NcclDeviceResources&) = delete;
  NcclDeviceResources& operator=(const NcclDeviceResources&) = delete;
  virtual ~NcclDeviceResources() = default;

  /// Makes kernels end that were not launched by NCCL and wait for other ranks. Their results are then undefined. Any
  /// thread; does not block.
  virtual void abort() noexcept = 0;
  /// A stream of the rank's device, and scratch_size bytes of its memory whose contents do not matter.
  [[nodiscard]] virtual CUstream_st* stream(std::size_t rank) const noexcept = 0;
  [[nodiscard]] virtual void* scratch(std::size_t rank) const noexcept = 0;
  /// As long as the result is held, the rank's device is the current one of the calling thread. Throws std::bad_alloc.
  [[nodiscard]] virtual std::shared_ptr<void> make_current(std::size_t rank) const = 0;
  /// Whether all work on stream(rank) has completed. Does not block. Throws the error of failed work.
  [[nodiscard]] virtual bool is_idle(std::size_t rank) const = 0;
  /// CTAs of NCCL's kernels; 0: as many as NCCL chooses.
  [[nodiscard]] virtual int ctas() const noexcept { return 0; }
  /// Null if kernels of ours cannot do collectives of so many ranks: the same in all processes.
  [[nodiscard]] virtual PeerMemoryExchange* exchange() noexcept { return nullptr; }
  /// Blocks until all work on stream(rank) has completed. Throws the error of failed work.
  virtual void synchronize(std::size_t rank) const = 0;

  static constexpr std::size_t scratch_size = 4096;
};

}  // namespace cox
