#pragma once

#include <coxswain/device_handle/base/unique_function.hpp>
#include <coxswain/runtime/async/milestone.hpp>

#include <chrono>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace cox {

/// Reached when all of these are, which may be of several devices: for who waits for what none of their streams has
/// come to wait for. Any thread.
class MilestoneSet final : public Milestone, public std::enable_shared_from_this<MilestoneSet> {
 public:
  using Milestones = std::vector<std::shared_ptr<Milestone>>;

  /// At least one.
  explicit MilestoneSet(Milestones milestones) noexcept : milestones_(std::move(milestones)) {}
  /// The one, or a set of several. Not of none. Throws std::bad_alloc.
  template <class M>
  [[nodiscard]] static std::shared_ptr<Milestone> of(std::vector<std::shared_ptr<M>> milestones) {
    if (milestones.size() == 1) return std::move(milestones.front());
    return std::make_shared<MilestoneSet>(Milestones(milestones.begin(), milestones.end()));
  }

  [[nodiscard]] bool reached() noexcept override;
  void wait() noexcept override;
  [[nodiscard]] bool wait_until(std::chrono::steady_clock::time_point deadline) noexcept override;
  /// On the helper thread of the last one's device.
  void notify(UniqueFunction<void()> function) override;

 private:
  using Function = std::shared_ptr<UniqueFunction<void()>>;
  void notify_from(std::size_t next, const Function& function);

  const Milestones milestones_;
};

}  // namespace cox
