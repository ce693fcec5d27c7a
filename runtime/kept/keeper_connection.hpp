#pragma once

#include <coxswain/runtime/kept/keeper_message.hpp>
#include <coxswain/runtime/socket/file_descriptor.hpp>

#include <sys/types.h>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <source_location>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace cox {

/// Pieces of memory of one device and name, as file descriptors: one for each piece, in the order of their addresses.
struct KeptPieces {
  std::vector<FileDescriptor> descriptors;
  std::vector<std::uint64_t> sizes;  ///< bytes
  bool are_last = true;              ///< no piece follows
};
/// Returns the next pieces of an allocation, at most KeeperMessage::pieces_at_a_time and at least one, until are_last.
using KeptPieceSource = std::function<KeptPieces()>;

/// What the supervisor holds of a set.
struct HeldSet {
  std::uint64_t generation = 1;  ///< of this process: greater than that of every earlier one
  struct Memory {
    std::uint64_t bytes = 0;
    std::uint64_t epoch = 0;  ///< of the last update before the memory was made
  };
  std::map<std::pair<std::string, std::string>, Memory> memory;  ///< by device and name
  struct Values {
    std::string device;
    std::uint64_t epoch = 0;
    std::vector<std::byte> bytes;
  };
  std::vector<Values> values;  ///< of the last epochs
  /// Devices of which the memory was lost after their last commit: it is not held.
  std::set<std::string> lost;
};

/// The connection of this process to `cox run`, which holds kept memory for its successor. All functions block for the
/// supervisor, and throw KeptError: Supervisor if it does not answer, what it refuses, and Forked in a fork of the
/// process that made the first call. Any thread.
class KeeperConnection {
 public:
  /// The variable that has the path of the supervisor's socket.
  static constexpr const char* variable = "COX_KEEPER";

  /// null if no supervisor started this process. The first call connects, and starts a thread that kills the process
  /// (SIGKILL) when its supervisor has ended: nothing would hold the memory for a successor. Not so before Linux 5.3,
  /// and if the supervisor is in a PID namespace that this process does not see. Throws KeptError Supervisor if it
  /// cannot connect or start the thread.
  [[nodiscard]] static std::shared_ptr<KeeperConnection> of_process(std::source_location site);

  /// Connects to the supervisor with that socket. Throws KeptError Supervisor.
  KeeperConnection(const std::string& path, std::source_location site);

  /// `mode`: anything else that must be the same in each process.
  [[nodiscard]] HeldSet open(const std::string& set, const std::string& schema, const std::string& mode,
                             std::source_location site);
  /// This process uses the set no longer, and may open it again. Does not wait.
  void close(const std::string& set) noexcept;
  /// Gives new memory to the supervisor, which holds it from then on. Takes the next pieces when the supervisor has
  /// acknowledged the last ones, which are closed. If it throws, the supervisor holds none of them once forget() was
  /// called for the memory, or the process has ended. `bytes`: as requested. `epoch`: of the last update before the
  /// memory was made. Throws KeptError: Limit, Descriptors; what `pieces` throws.
  void keep(const std::string& set, const std::string& device, const std::string& name, std::uint64_t bytes,
            std::uint64_t epoch, const KeptPieceSource& pieces, std::source_location site);
  /// Reports the epoch at which the memory was committed last. Returns how many runs in a row have ended without a
  /// commit.
  [[nodiscard]] std::uint64_t found(const std::string& set, std::uint64_t epoch, std::source_location site);
  /// The pieces of memory that the supervisor holds, from that number on: at most pieces_at_a_time. Throws KeptError
  /// Descriptors if this process or the supervisor has too few left; both close what was passed.
  [[nodiscard]] KeptPieces take(const std::string& set, const std::string& device, const std::string& name,
                                std::size_t first, std::source_location site);
  /// The supervisor closes its descriptors of the memory, or of the whole set if `name` is empty.
  void forget(const std::string& set, const std::string& device, const std::string& name, std::source_location site);
  /// What the supervisor holds for the device does not exist any more.
  void lose(const std::string& set, const std::string& device, std::source_location site);
  /// Does not wait for the supervisor's answer, but for other requests of this process and for space in the socket,
  /// each for keeper_shortly at most. Throws KeptError Supervisor then.
  void send_values(const std::string& set, const std::string& device, std::uint64_t epoch,
                   std::span<const std::byte> values, std::source_location site);

 private:
  // A mutex that can be waited for with a limit. (Of std::timed_mutex ThreadSanitizer does not know the calls.)
  class Turn {
   public:
    void lock();
    [[nodiscard]] bool try_lock_for(std::chrono::milliseconds longest);
    void unlock();

   private:
    std::mutex mutex_;
    std::condition_variable free_;
    bool taken_ = false;  // guarded by mutex_
  };

  void require_same_process(std::source_location site) const;
  // Sends the request, and returns the first answer.
  KeeperMessage send_request(const KeeperMessage& request, std::source_location site);
  // The next packet of the answer. A failure ends the connection, since what follows in it would be taken for the
  // answer to another request; but a refusal and a lack of descriptors are complete answers.
  [[nodiscard]] KeeperMessage answer(std::source_location site);

  FileDescriptor socket_;
  const pid_t process_;
  Turn turn_;  // one request at a time
};

}  // namespace cox
