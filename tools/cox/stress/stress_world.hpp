#pragma once

#include <coxswain/collectives/world/world.hpp>
#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/tools/cox/stress/shared_run.hpp>

#include <cstdint>
#include <memory>
#include <vector>

namespace cox::stress {

/// The world of a stress run of several processes. It must live longer than the run.
class StressWorld {
 public:
  /// Joins the world that the environment names, with these devices of this process, which have one type. Blocks until
  /// all processes have joined. Returns null if this process is alone. Throws ConfigError, StoreError and WorldError.
  [[nodiscard]] static std::unique_ptr<StressWorld> join(const std::vector<DeviceId>& devices);

  [[nodiscard]] std::uint16_t process() const noexcept { return world_.process(); }
  [[nodiscard]] std::uint16_t size() const noexcept { return world_.size(); }
  /// The same in all processes, and another one in each world.
  [[nodiscard]] std::uint64_t seed() const;
  [[nodiscard]] SharedRun shared_run();

 private:
  StressWorld(World world, std::uint16_t type) : world_(std::move(world)), type_(type) {}
  [[nodiscard]] std::vector<ProcessSummary> exchange(const ProcessSummary& own) const;

  World world_;
  std::uint16_t type_;  // of the devices that the run uses
};

}  // namespace cox::stress
