#pragma once

#include <coxswain/runtime/kept/keeper_connection.hpp>
#include <coxswain/runtime/kept/kept_storage.hpp>
#include <coxswain/runtime/socket/file_descriptor.hpp>

#include <cstddef>
#include <memory>
#include <source_location>

namespace cox::detail {

/// Memory of a host device that other processes can map: an anonymous file (memfd_create), shared. It exists as long as
/// a process has it mapped or a descriptor of it open. Any thread.
class MemoryFile final : public KeptStorage {
 public:
  /// Bytes that create() takes from the device for memory of `bytes` bytes.
  [[nodiscard]] static std::size_t bytes_for(std::size_t bytes) noexcept;
  /// New memory, zeroed. Throws KeptError: Memory, Descriptors.
  [[nodiscard]] static std::shared_ptr<MemoryFile> create(std::size_t bytes, std::source_location site);
  /// Maps the memory of another process: one piece. Throws KeptError Memory, and what `pieces` throws.
  [[nodiscard]] static std::shared_ptr<MemoryFile> adopt(const KeptPieceSource& pieces, std::source_location site);
  ~MemoryFile() override;

  [[nodiscard]] void* address() const noexcept override { return address_; }
  [[nodiscard]] std::size_t bytes() const noexcept override { return bytes_; }
  [[nodiscard]] KeptPieces next_pieces(std::source_location site) override;
  void not_shared() noexcept override { file_.reset(); }

 private:
  MemoryFile(FileDescriptor file, std::size_t bytes, std::source_location site);

  FileDescriptor file_;
  std::size_t bytes_;
  void* address_ = nullptr;
};

}  // namespace cox::detail
