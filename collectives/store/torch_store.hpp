#pragma once

#include <coxswain/collectives/store/deadline_socket.hpp>
#include <coxswain/collectives/store/store.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace cox::detail {

struct TorchStoreOptions {
  std::string host;
  std::uint16_t port = 0;
  std::string run;
  std::uint32_t restart = 0;
};

/// A client of PyTorch's TCPStore, as the agent of torchrun serves it. Speaks the protocol of PyTorch 2.3 and newer:
/// one byte for the call, then its arguments; numbers in the byte order of the host, strings as a 64-bit length and
/// bytes. The store has no token: all that reach its port can read and write it.
class TorchStore final : public Store {
 public:
  /// Connects, until the deadline. Throws StoreError: Unreachable, Protocol if what answers is not such a store.
  TorchStore(const TorchStoreOptions& options, Deadline deadline);

 private:
  enum class Call : std::uint8_t;
  class Message;

  void do_set(const std::string& key, std::span<const std::byte> value, Deadline deadline) override;
  std::vector<std::byte> do_get(const std::string& key, Deadline deadline) override;
  std::int64_t do_add(const std::string& key, std::int64_t amount, Deadline deadline) override;
  std::vector<std::byte> do_compare_set(const std::string& key, std::span<const std::byte> expected,
                                        std::span<const std::byte> desired, Deadline deadline) override;
  void do_close(Deadline deadline) override;

  void greet(Deadline deadline);
  void wait_for_key(const std::string& key, Deadline deadline);
  void cancel_wait(const std::string& key, Deadline deadline);
  [[nodiscard]] bool has_key(const std::string& key, Deadline deadline);
  void send(const Message& message, Deadline deadline);
  template <class T>
  [[nodiscard]] T receive(const std::string& key, Deadline deadline);
  [[nodiscard]] std::vector<std::byte> receive_bytes(const std::string& key, Deadline deadline);
  void require_reply(const std::string& key, Deadline deadline);
  [[noreturn]] void fail_protocol(const std::string& what);

  DeadlineSocket socket_;
};

}  // namespace cox::detail
