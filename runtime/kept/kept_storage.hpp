#pragma once

#include <coxswain/runtime/kept/keeper_connection.hpp>

#include <cstddef>
#include <memory>
#include <source_location>
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
  /// The next pieces of new memory for another process: at most KeeperMessage::pieces_at_a_time. The calls until
  /// are_last return all pieces once; memory of another process has none. Throws KeptError Descriptors.
  [[nodiscard]] virtual KeptPieces next_pieces(std::source_location site) = 0;

  /// No other process will map the memory: next_pieces() is not called.
  virtual void not_shared() noexcept {}

  /// `counted` is destroyed after the memory has been unmapped: see KeptServer.
  void set_count(std::shared_ptr<void> counted) noexcept { counted_ = std::move(counted); }

 private:
  std::shared_ptr<void> counted_;
};

}  // namespace cox
