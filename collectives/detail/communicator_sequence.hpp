#pragma once

#include <coxswain/runtime/communication/collective_request.hpp>
#include <coxswain/runtime/communication/communication_id.hpp>
#include <coxswain/collectives/flight_recorder.hpp>
#include <coxswain/collectives/launch.hpp>
#include <coxswain/device_handle/device_id.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace cox::detail {

/// A rank's launch and what it is to be told.
struct LaunchAnswer {
  std::size_t rank;
  LaunchTurn turn;
  Launch launch;
};

/// The operations of one communicator that not all ranks have submitted yet. No thread of its own and no lock: whoever
/// owns it has one. What must be answered is collected, never called.
class CommunicatorSequence {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// A rank that holds up the oldest operation.
  struct Missing {
    std::size_t rank;
    DeviceId device;
    std::string last;  ///< What it submitted last.
  };
  /// The oldest operation that waits for a rank.
  struct Overdue {
    std::uint64_t sequence;
    CollectiveRequest request;  ///< Of the rank that came first.
    std::vector<Missing> missing;
  };

  CommunicatorSequence(std::string name, CommunicationId devices, std::chrono::milliseconds timeout,
                       std::size_t max_ahead, std::shared_ptr<FlightRecorder> recorder);

  /// Throws CallError QueueFull: the rank is too far ahead of the slowest. Nothing has changed then.
  void check_room(std::size_t rank) const;
  /// Whether the rank's next request is one that others will have to follow.
  [[nodiscard]] bool begins_operation(std::size_t rank) const;
  /// Returns the operation's number. Answers the rank at once if everything is refused.
  std::uint64_t submit(std::size_t rank, const CollectiveRequest& request, Launch launch, Time now,
                       std::vector<LaunchAnswer>& answers);
  /// Answers what can be answered. `order` counts the operations of all communicators.
  void settle(std::uint64_t& order, std::vector<LaunchAnswer>& answers);
  /// Refuses everything that waits, and everything that comes until reopen(). The first error stays.
  void refuse(const std::exception_ptr& error, std::vector<LaunchAnswer>& answers);
  /// Ends refusing. All ranks go on with the same number, one above the highest.
  void reopen();

  /// When the oldest operation that waits for a rank is overdue.
  [[nodiscard]] std::optional<Time> deadline() const;
  [[nodiscard]] Overdue overdue() const;
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] const CommunicationId& devices() const noexcept { return devices_; }
  [[nodiscard]] std::chrono::milliseconds timeout() const noexcept { return timeout_; }
  [[nodiscard]] const std::shared_ptr<FlightRecorder>& recorder() const noexcept { return recorder_; }

 private:
  struct Arrival {
    CollectiveRequest request{};
    Launch launch{};  // empty: not arrived, or answered
    bool arrived = false;
  };
  struct Operation {
    std::vector<Arrival> ranks;
    std::size_t arrived = 0;
    std::size_t first = 0;  // the rank that came first
    Time deadline{};
    std::exception_ptr refusal = nullptr;  // of a mismatch
  };
  struct Last {
    std::uint64_t sequence;
    CollectiveRequest request;
  };

  Operation& operation_of(std::uint64_t sequence, std::size_t rank, Time now);
  void answer_rank(std::size_t rank, const LaunchTurn& turn, Launch launch, std::vector<LaunchAnswer>& answers);
  void compare(Operation& operation, std::uint64_t sequence, std::size_t rank);
  [[nodiscard]] std::optional<std::size_t> oldest() const;  // the place in waiting_ of what waits for a rank
  [[nodiscard]] std::string last_of(std::size_t rank) const;

  const std::string name_;
  const CommunicationId devices_;
  const std::chrono::milliseconds timeout_;
  const std::size_t max_ahead_;
  const std::shared_ptr<FlightRecorder> recorder_;
  std::deque<Operation> waiting_;
  std::uint64_t first_ = 1;          // the sequence number of waiting_.front()
  std::vector<std::uint64_t> next_;  // of each rank
  std::vector<std::optional<Last>> last_;
  std::exception_ptr error_;  // set: refuses everything
};

}  // namespace cox::detail
