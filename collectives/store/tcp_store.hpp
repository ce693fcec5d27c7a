#pragma once

#include <coxswain/collectives/store/deadline_socket.hpp>
#include <coxswain/collectives/store/store.hpp>
#include <coxswain/collectives/store/tcp_store_server.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace cox::detail {

struct StoreMessage;

/// A store that process 0 serves over TCP, from its constructor to the end of its close(). All processes, process 0
/// included, are clients with one connection each.
class TcpStore final : public Store {
 public:
  /// Process 0 begins to serve the store. All connect, until the deadline; a store of an earlier restart of the run is
  /// waited for until it has ended. Throws StoreError: Unreachable, Refused.
  TcpStore(const TcpStoreOptions& options, Deadline deadline);
  ~TcpStore() override;

  [[nodiscard]] std::uint16_t port() const noexcept { return options_.port; }

 private:
  void do_set(const std::string& key, std::span<const std::byte> value, Deadline deadline) override;
  std::vector<std::byte> do_get(const std::string& key, Deadline deadline) override;
  std::int64_t do_add(const std::string& key, std::int64_t amount, Deadline deadline) override;
  std::vector<std::byte> do_compare_set(const std::string& key, std::span<const std::byte> expected,
                                        std::span<const std::byte> desired, Deadline deadline) override;
  void do_close(Deadline deadline) override;

  void connect(Deadline deadline);
  StoreMessage call(StoreMessage request, Deadline deadline);
  StoreMessage receive(Deadline deadline);

  TcpStoreOptions options_;
  std::unique_ptr<TcpStoreServer> server_;  // in process 0
  std::unique_ptr<DeadlineSocket> socket_;
  std::uint32_t last_number_ = 0;
};

}  // namespace cox::detail
