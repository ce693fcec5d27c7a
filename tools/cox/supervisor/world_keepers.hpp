#pragma once

#include <coxswain/tools/cox/supervisor/keeper.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace cox::tools {

/// Holds the kept memory of the processes of a world: a Keeper for each process number, with sockets of its own. So the
/// process of a restarted world is given what the one with its number has left, and cannot open the memory of another
/// number. The limits are for all together. One thread.
class WorldKeepers {
 public:
  /// The sockets of process P are at this path, followed by P and the number of the run: see Keeper.
  WorldKeepers(const std::filesystem::path& sockets, std::size_t processes, KeeperLimits limits = {});

  /// Begins a run of all processes. Throws std::system_error. Precondition: no run is open.
  void begin_run();
  /// The socket of that process in this run.
  [[nodiscard]] const std::filesystem::path& path(std::size_t process) const { return keepers_[process]->path(); }
  /// As of Keeper, for all processes.
  [[nodiscard]] std::vector<int> descriptors() const;
  void serve();
  /// Ends the run: all its processes have ended. Returns whether a run with the memory that is held is likely to make
  /// progress: whether that is so for each process that keeps memory, and whether there is one.
  bool end_run();
  void lose_gpu_memory();

  [[nodiscard]] bool was_used() const noexcept;
  [[nodiscard]] bool holds_memory() const noexcept;
  [[nodiscard]] std::uint64_t bytes() const noexcept { return use().bytes; }
  [[nodiscard]] std::uint64_t most_bytes() const noexcept { return keepers_.front()->most_bytes(); }
  /// "process 0: model: 12 allocations, ...": a line for each set of each process.
  [[nodiscard]] std::string to_string() const;

 private:
  // Of all keepers but that one, which may be null.
  [[nodiscard]] KeptUse use(const Keeper* without = nullptr) const noexcept;

  std::vector<std::unique_ptr<Keeper>> keepers_;  // by process
};

}  // namespace cox::tools
