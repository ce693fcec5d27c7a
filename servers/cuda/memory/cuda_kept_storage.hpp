#pragma once

#include <coxswain/runtime/kept/keeper_connection.hpp>
#include <coxswain/runtime/kept/kept_storage.hpp>
#include <coxswain/servers/cuda/device/cuda_context.hpp>
#include <coxswain/servers/cuda/driver/driver.hpp>

#include <cstddef>
#include <memory>
#include <source_location>
#include <utility>
#include <vector>

namespace cox::detail {

/// Memory of a GPU that other processes can map: pieces of the driver's virtual memory management that are exported as
/// POSIX file descriptors, mapped one after the other. All GPUs that can access the device have access. Any thread.
class CudaKeptStorage final : public KeptStorage {
 public:
  /// The largest piece, in bytes; if the driver has none as large, smaller ones are taken.
  static constexpr std::size_t max_piece = std::size_t{512} << 20U;

  /// Bytes that create() takes from the device for memory of `bytes` bytes.
  [[nodiscard]] static std::size_t bytes_for(std::size_t bytes) noexcept;
  /// New memory, zeroed; blocks until it is. Throws KeptError Memory, CudaError.
  [[nodiscard]] static std::shared_ptr<CudaKeptStorage> create(std::shared_ptr<CudaContext> context, std::size_t bytes,
                                                               std::source_location site);
  /// Maps the memory of another process, of the same GPU, that was created with as many bytes. Each descriptor is
  /// closed when its piece has been imported. Throws KeptError Memory, CudaError, and what `pieces` throws.
  [[nodiscard]] static std::shared_ptr<CudaKeptStorage> adopt(std::shared_ptr<CudaContext> context, std::size_t bytes,
                                                              const KeptPieceSource& pieces, std::source_location site);
  ~CudaKeptStorage() override;

  [[nodiscard]] void* address() const noexcept override;
  [[nodiscard]] std::size_t bytes() const noexcept override { return mapped_; }
  [[nodiscard]] KeptPieces next_pieces(std::source_location site) override;

 private:
  CudaKeptStorage(std::shared_ptr<CudaContext> context, std::size_t bytes);

  void create_pieces(std::source_location site);
  void import_piece(int descriptor, std::size_t bytes, std::source_location site);
  [[nodiscard]] bool can_import() const;
  void map(CUmemGenericAllocationHandle piece, std::size_t bytes);
  void give_access();
  void set_zero();

  const std::shared_ptr<CudaContext> context_;
  const std::size_t reserved_;  // bytes of the range of addresses
  CUdeviceptr base_ = 0;
  std::size_t mapped_ = 0;  // bytes
  std::vector<CUmemGenericAllocationHandle> pieces_;
  std::vector<std::size_t> sizes_;  // of new pieces, in bytes
  std::size_t exported_ = 0;        // new pieces that next_pieces() has returned
};

}  // namespace cox::detail
