#pragma once

#include <coxswain/runtime/kept/keeper_connection.hpp>

#include <cstddef>
#include <memory>
#include <utility>

namespace cox {

/// Memory of a device that other processes can map, too: from file descriptors. The destructor unmaps it. Any thread.
class KeptStorage {
 public:
  KeptStorage() = default;
  KeptStorage(const KeptStorage&) = delete;
  KeptStorage& operator=(const KeptStorage&) = delete;
  virtual ~KeptStorage() = default;

  [[nodiscard]] virtual void* address() const noexcept = 0;
  /// Bytes that are mapped: at least as many as were requested.
  [[nodiscard]] virtual std::size_t bytes() const noexcept = 0;
  /// The descriptors of the memory, once; then none.
  [[nodiscard]] virtual KeptPieces take_pieces() noexcept = 0;

  /// `counted` is destroyed after the memory has been unmapped: see KeptServer.
  void set_count(std::shared_ptr<void> counted) noexcept { counted_ = std::move(counted); }

 private:
  std::shared_ptr<void> counted_;
};

}  // namespace cox
