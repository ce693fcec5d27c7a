#pragma once

#include <coxswain/collectives/store/store.hpp>
#include <coxswain/collectives/store/world_token.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace cox::detail {

/// What a store over TCP and its clients agree on.
struct TcpStoreOptions {
  std::string host;  ///< name or address of the host of process 0
  std::uint16_t port = 0;
  std::uint16_t process = 0;  ///< of the caller
  std::uint16_t processes = 1;
  std::string run;
  std::uint32_t restart = 0;
  WorldToken token{};  ///< all zeros: none
};

/// Holds the keys of a TcpStore and serves them to all processes, on a thread of its own. A connection that sends
/// anything but messages of the protocol, or more than their largest size, is closed; the others are not affected.
class TcpStoreServer {
 public:
  /// Listens on the address of `options.host` alone, which must be one of this host: on the loopback device, if the
  /// address is a loopback address. Port 0: any free port. While the port is in use by a store that is about to end,
  /// tries again, for at most 5 s and until the deadline. Throws StoreError Unreachable.
  TcpStoreServer(TcpStoreOptions options, Store::Deadline deadline);
  TcpStoreServer(const TcpStoreServer&) = delete;
  TcpStoreServer& operator=(const TcpStoreServer&) = delete;
  /// Closes all connections, and joins the thread.
  ~TcpStoreServer();

  [[nodiscard]] std::uint16_t port() const noexcept;
  /// Blocks until all processes have closed their store, or until the deadline. Returns the processes that have not.
  [[nodiscard]] std::vector<std::uint16_t> wait_until_closed(Store::Deadline deadline);

 private:
  struct Service;

  std::unique_ptr<Service> service_;
};

}  // namespace cox::detail
