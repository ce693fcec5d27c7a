#pragma once

#include <coxswain/collectives/store/world_token.hpp>
#include <coxswain/tools/cox/supervisor/child_process.hpp>
#include <coxswain/tools/cox/supervisor/descendants.hpp>
#include <coxswain/tools/cox/supervisor/descriptor_limit.hpp>
#include <coxswain/tools/cox/supervisor/private_folder.hpp>
#include <coxswain/tools/cox/supervisor/world_keepers.hpp>

#include <sys/types.h>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

namespace cox::tools {

/// A run of a world, as its processes know it.
struct RunOfWorld {
  std::uint64_t number = 0;  ///< how often the world has been restarted before
  std::string leader;        ///< "leader://127.0.0.1:40123"
  detail::WorldToken token{};
  std::string name;                                   ///< of the world
  std::size_t processes = 2;                          ///< of the world
  std::size_t first_process = 0;                      ///< number of the first process on this host
  std::optional<std::filesystem::path> last_fault{};  ///< report of the fault that ended the last run
};

/// Starts the processes of a world on this host, run for run, and holds their kept memory. One thread.
class LocalProcesses {
 public:
  /// `count`: processes on this host. Throws std::system_error.
  LocalProcesses(std::vector<std::string> program, std::size_t count, std::uint64_t kept_limit, std::ostream& err);

  /// The processes of earlier runs have ended. Throws std::system_error.
  void begin_run(RunOfWorld run);
  /// Starts a process of the run: `process` is its number on this host. `restart`: the value of COX_WORLD_RESTART.
  /// Without `keeps` it can keep no memory. Throws std::system_error.
  [[nodiscard]] std::unique_ptr<ChildProcess> start(std::size_t process, std::uint64_t restart, bool keeps = true);
  /// The file for the report of a GPU fault of that process of the run: its number in the world, on any host.
  [[nodiscard]] std::filesystem::path report(std::size_t process) const;
  /// Kills what the run has left, if it used kept memory: its other processes, which could still write it. `wait`: see
  /// end_children(). Returns whether none is left.
  [[nodiscard]] bool end_leftovers(const std::function<bool()>& wait);

  [[nodiscard]] const std::string& program() const noexcept { return program_.front(); }
  [[nodiscard]] std::size_t count() const noexcept { return count_; }
  [[nodiscard]] const std::filesystem::path& folder() const noexcept { return folder_.path(); }
  [[nodiscard]] WorldKeepers& keepers() noexcept { return keepers_; }
  [[nodiscard]] const WorldKeepers& keepers() const noexcept { return keepers_; }

 private:
  [[nodiscard]] std::filesystem::path folder_of(std::uint64_t run) const;

  const std::vector<std::string> program_;
  const std::size_t count_;
  std::ostream& err_;
  PrivateFolder folder_;
  DescriptorLimit descriptors_;
  WorldKeepers keepers_;
  const std::vector<pid_t> children_before_ = children_of_this_process();
  RunOfWorld run_;
};

}  // namespace cox::tools
