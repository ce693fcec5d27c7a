#pragma once

#include <coxswain/runtime/kept/file_descriptor.hpp>
#include <coxswain/runtime/kept/keeper_message.hpp>

#include <sys/types.h>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <source_location>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace cox {

/// Memory of one device and name, as file descriptors: one for each piece, in the order of their addresses.
struct KeptPieces {
  std::vector<FileDescriptor> descriptors;
  std::vector<std::uint64_t> sizes;  ///< bytes
};

/// What the supervisor holds of a set.
struct HeldSet {
  std::uint64_t generation = 1;  ///< of this process: greater than that of every earlier one
  std::map<std::pair<std::string, std::string>, std::uint64_t> memory;  ///< bytes, by device and name
  struct Values {
    std::string device;
    std::uint64_t epoch = 0;
    std::vector<std::byte> bytes;
  };
  std::vector<Values> values;  ///< of the last epochs
};

/// The connection of this process to `cox run`, which holds kept memory for its successor. All functions block for the
/// supervisor, and throw KeptError: Supervisor if it does not answer, what it refuses, and Forked in a fork of the
/// process that made the first call. Any thread.
class KeeperConnection {
 public:
  /// The variable that has the number of the socket.
  static constexpr const char* variable = "COX_KEEPER";

  /// null if no supervisor started this process. The first call takes the socket over: programs that this process
  /// starts do not inherit it.
  [[nodiscard]] static std::shared_ptr<KeeperConnection> of_process(std::source_location site);

  /// Takes the socket over.
  explicit KeeperConnection(int socket) noexcept;

  [[nodiscard]] HeldSet open(const std::string& set, const std::string& schema, const std::string& mode,
                             std::source_location site);
  /// This process uses the set no longer, and may open it again. Does not wait.
  void close(const std::string& set) noexcept;
  /// Gives memory to the supervisor, which holds it from then on. The descriptors are closed. `bytes`: as requested.
  void keep(const std::string& set, const std::string& device, const std::string& name, std::uint64_t bytes,
            KeptPieces pieces, std::source_location site);
  /// Says at which epoch the memory was committed last. Returns how many runs in a row have ended without a commit.
  [[nodiscard]] std::uint64_t found(const std::string& set, std::uint64_t epoch, std::source_location site);
  [[nodiscard]] KeptPieces take(const std::string& set, const std::string& device, const std::string& name,
                                std::source_location site);
  /// The supervisor closes its descriptors of the memory, or of the whole set if `name` is empty.
  void forget(const std::string& set, const std::string& device, const std::string& name, std::source_location site);
  /// Does not wait for the supervisor: throws KeptError Supervisor if it does not take the message at once.
  void send_values(const std::string& set, const std::string& device, std::uint64_t epoch,
                   std::span<const std::byte> values, std::source_location site);

 private:
  void require_same_process(std::source_location site) const;
  // Sends the request, and returns the first answer.
  KeeperMessage ask(const KeeperMessage& request, std::source_location site);
  [[nodiscard]] KeeperMessage answer(std::source_location site) const;

  const FileDescriptor socket_;
  const pid_t process_;
  std::mutex mutex_;  // one request at a time
};

}  // namespace cox
