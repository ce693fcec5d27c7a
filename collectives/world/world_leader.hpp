#pragma once

#include <coxswain/collectives/store/world_token.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace cox {

struct WorldLeaderOptions {
  std::uint16_t processes = 2;
  std::string run{};               ///< name of the run, that of all processes
  detail::WorldToken token{};      ///< that of all processes; not all zeros
  std::string host = "127.0.0.1";  ///< listens on the interface with this address alone
  /// The world goes on without a process that has not left it: it is silent, its connection has ended, or it has lost
  /// its connections to others. It may still run, for example if it is stopped. `restart`: its COX_WORLD_RESTART.
  /// Called on the leader's thread; must not block or throw.
  std::function<void(std::uint16_t process, std::uint32_t restart)> expelled{};
};

/// Leads a world that its own process takes no part in: that of `cox run`. The processes of the world find it by its
/// address (COX_WORLD) and the token (COX_WORLD_TOKEN). Because it outlives them, a process that has ended can have a
/// successor: a process with the same number and the same devices, and a higher COX_WORLD_RESTART. The world starts
/// when all its processes have joined.
///
/// Has a thread of its own. Uses the settings collectives.max_ahead, world.heartbeat and world.silence.
class WorldLeader {
 public:
  /// Listens. Throws WorldError Unreachable, std::system_error (no thread).
  explicit WorldLeader(WorldLeaderOptions options);
  WorldLeader(const WorldLeader&) = delete;
  WorldLeader& operator=(const WorldLeader&) = delete;
  /// The world ends for those processes that are still in it (CollectiveError WorldGone).
  ~WorldLeader();

  /// "leader://127.0.0.1:40123", the value of COX_WORLD for the processes.
  [[nodiscard]] std::string address() const;
  /// For people: the processes, and what the operations wait for that some of them have submitted. Any thread; blocks
  /// for the leader's thread.
  [[nodiscard]] std::string describe() const;

 private:
  class Thread;

  const std::unique_ptr<Thread> thread_;
};

}  // namespace cox
