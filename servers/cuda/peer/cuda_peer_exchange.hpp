#pragma once

#include <coxswain/collectives/link/descriptor_exchange.hpp>
#include <coxswain/collectives/nccl/nccl_device_resources.hpp>
#include <coxswain/device_handle/base/unique_function.hpp>
#include <coxswain/runtime/communication/communication_id.hpp>
#include <coxswain/servers/cuda/driver/driver.hpp>
#include <coxswain/servers/cuda/peer/peer_kernels.hpp>
#include <coxswain/servers/cuda/peer/peer_memory.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace cox::detail {

/// Gives the peer kernels of the processes of a communicator access to the memory of all its ranks. All processes must
/// run on one host, as one user, and have the same settings; each one exports its memory, and imports that of the
/// others.
class CudaPeerExchange final : public PeerMemoryExchange {
 public:
  /// A rank of this process, with its scratch memory and stream.
  struct Rank {
    PeerKernels::OwnRank own;
    CUdeviceptr scratch;
    CUstream stream;
  };
  struct Result {
    std::shared_ptr<PeerKernels> kernels;  ///< null: the processes do not share memory
    /// Whether all processes can compile kernels; else there are only those that were compiled when the library was
    /// built, which all of them have.
    bool can_compile = false;
    std::string why_not;       ///< why there are no kernels
    std::exception_ptr cause;  ///< of that, in this process
  };

  /// `devices`: of all processes. `then` is called once, when all processes have agreed, and must not throw.
  CudaPeerExchange(CommunicationId devices, std::vector<Rank> ranks, bool is_reproducible,
                   UniqueFunction<void(Result)> then);

  [[nodiscard]] Message message(std::size_t rank) noexcept override;
  [[nodiscard]] bool begin(const std::vector<Message>& messages) noexcept override;
  [[nodiscard]] std::optional<bool> advance() noexcept override;
  void end(bool all_have_access) noexcept override;
  void write(std::size_t rank, std::span<const std::byte> bytes) const override;
  void read(std::size_t rank, std::span<std::byte> bytes) const override;

 private:
  /// The contents of a message; the same for all ranks of a process.
  struct Greeting;

  /// Why processes do not share memory.
  struct Obstacle {
    enum class Kind : std::uint8_t { None, Setting, System, Hosts, Order, Kernels };
    Kind kind = Kind::None;
    std::size_t rank = 0;  ///< of the process, if it is one
  };

  [[nodiscard]] Greeting make_greeting() noexcept;
  [[nodiscard]] static Obstacle obstacle_of(std::span<const Greeting> greetings) noexcept;
  [[nodiscard]] std::string text_of(const Obstacle& obstacle) const;
  void share(std::span<const Greeting> greetings);
  void import(std::vector<std::vector<FileDescriptor>> shared);
  void warn(const std::string& why) const noexcept;

  const CommunicationId devices_;
  const std::vector<Rank> ranks_;
  const bool is_reproducible_;
  UniqueFunction<void(Result)> then_;
  std::unique_ptr<world::DescriptorExchange> exchange_;
  std::vector<std::vector<std::size_t>> others_;     // the ranks of each other process
  std::vector<std::shared_ptr<PeerMemory>> memory_;  // of all ranks
  Result result_;
};

}  // namespace cox::detail
