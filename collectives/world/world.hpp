#pragma once

#include <coxswain/collectives/discovery/world_place.hpp>
#include <coxswain/device_handle/base/device_id.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace cox {

namespace detail::world {
class WorldSession;
}  // namespace detail::world

/// A process of a world.
struct WorldProcess {
  std::string host;  ///< name of its host
  std::uint64_t pid = 0;
  std::vector<DeviceId> devices;  ///< by their names in the world
};

/// The processes that this one does collective operations with. Communicators may have devices of all of them
/// (CommunicationId), and their operations have one order in all processes (L17). So a program that works with the
/// devices of one process works with those of several: each process has clients of its own devices only.
///
/// Process 0 leads the world, unless `cox run` or a WorldLeader does: when the leader ends, the world ends, and
/// operations of several processes fail with CollectiveError WorldGone. When another one ends, those that it takes part
/// in fail with ProcessGone.
///
/// A process joins one world at most, before it opens a communicator with devices of others.
class World {
 public:
  /// Joins the world that the options and the environment name (see discover()), with these devices of this process,
  /// which need not be open. Blocks until all processes have joined and have connected to each other, at most for the
  /// time of the options, or setting world.timeout. From then on a process that leaves, or ends, fails no join; one
  /// that ends before fails that of the processes that have no connection to it yet. With one process it returns at
  /// once, opens no connection, and devices keep their names. Throws ConfigError, StoreError and WorldError.
  [[nodiscard]] static World join(const std::vector<DeviceId>& devices, const WorldOptions& options = {});
  World(World&&) noexcept = default;
  World& operator=(World&&) = delete;
  /// Calls leave().
  ~World();

  /// Leaves the world: operations of this process that have not completed fail, and so do those of other processes that
  /// need it and were not released. What this process has completed completes in the other processes, too: if it leaves
  /// nothing incomplete behind, leave() blocks until they have done so, or are gone or silent (world.silence), at most
  /// for the time of the options; they report it within world.heartbeat. Process 0, if it leads the world, blocks until
  /// all others have left. Idempotent.
  void leave() noexcept;

  /// Blocks until each process that is known to be gone has a successor, at most for this time. Returns whether that is
  /// so. Then communicators with those processes can be renewed (ensure_init_collective). That, or the next operation,
  /// can fail with ProcessGone again: a process can end at any time, and an error can name one that this process is
  /// told of a moment later. Then call this again. Only a leader that takes no part in the world accepts successors
  /// (`cox run`, WorldLeader). Throws CollectiveError WorldGone.
  [[nodiscard]] bool wait_for_successors(std::chrono::nanoseconds time) const;

  /// The number of this process, from 0, and how many there are.
  [[nodiscard]] std::uint16_t process() const noexcept { return process_; }
  [[nodiscard]] std::uint16_t size() const noexcept { return static_cast<std::uint16_t>(processes_.size()); }
  /// By number, as they were when this process joined.
  [[nodiscard]] const std::vector<WorldProcess>& processes() const noexcept { return processes_; }
  /// The devices of all processes that have this type, in the order of their ranks, by the names that
  /// CommunicationId takes.
  [[nodiscard]] std::vector<DeviceId> devices(std::uint16_t type) const;

 private:
  World() = default;

  std::uint16_t process_ = 0;
  std::vector<WorldProcess> processes_;
  std::chrono::nanoseconds timeout_{};
  std::shared_ptr<detail::world::WorldSession> session_;  // null in a world of one process
};

}  // namespace cox
