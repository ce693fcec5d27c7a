#pragma once

#include <coxswain/runtime/milestone.hpp>
#include <coxswain/runtime/unique_function.hpp>
#include <coxswain/servers/cuda/detail/cuda_event.hpp>

#include <chrono>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace cox::detail {

/// Reached when all of these events are, which may be of several devices: for who waits for them without a stream that
/// does. Any thread.
class EventSet final : public Milestone, public std::enable_shared_from_this<EventSet> {
 public:
  using Events = std::vector<std::shared_ptr<CudaEvent>>;

  /// At least one.
  explicit EventSet(Events events) noexcept : events_(std::move(events)) {}
  /// The one event, or a set of several.
  [[nodiscard]] static std::shared_ptr<Milestone> of(Events events);

  [[nodiscard]] bool reached() noexcept override;
  void wait() noexcept override;
  [[nodiscard]] bool wait_until(std::chrono::steady_clock::time_point deadline) noexcept override;
  void notify(UniqueFunction<void()> function) override;

 private:
  using Function = std::shared_ptr<UniqueFunction<void()>>;
  void notify_from(std::size_t next, const Function& function);

  const Events events_;
};

}  // namespace cox::detail
