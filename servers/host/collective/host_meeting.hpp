#pragma once

#include <coxswain/collectives/reduction/in_process_collective.hpp>
#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/runtime/communication/collective_request.hpp>
#include <coxswain/servers/host/stream/timeline.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace cox::detail {

/// One operation of a communicator, or a group of them, as its ranks come to it: each says that it is there, when all
/// are there their threads do the work, share by share, and when all shares are done each is done with it. In a
/// transfer the sender's place is 0 and the receiver's 1; else a rank's place is the rank.
///
/// All ranks have asked for it, but the work that a rank has to do before may last. From when the first rank came the
/// others have the communicator's timeout for that (L10); then the meeting is aborted: the ranks that came go on
/// without it, and so do the others later. As long as nobody has come, nobody waits for anybody, however long that
/// lasts: operations that are asked for far ahead have all the time that those before them take.
class HostMeeting : public std::enable_shared_from_this<HostMeeting> {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// Throws std::bad_alloc, std::system_error (no thread for the deadline).
  [[nodiscard]] static std::shared_ptr<HostMeeting> make(CollectiveRequests requests,
                                                         std::vector<DeviceId> devices_in_order,
                                                         std::chrono::milliseconds timeout);
  /// Nobody looks after its deadline: see make().
  HostMeeting(CollectiveRequests requests, std::vector<DeviceId> devices_in_order, std::chrono::milliseconds timeout);
  HostMeeting(const HostMeeting&) = delete;
  HostMeeting& operator=(const HostMeeting&) = delete;
  ~HostMeeting();

  [[nodiscard]] std::size_t ranks() const noexcept { return places_.size(); }
  [[nodiscard]] std::size_t shares() const noexcept { return shares_; }
  /// Which operation of its communicator it is. Each rank says so before it arrives.
  void open(std::uint64_t sequence) noexcept;
  /// The memory that a rank has for each operation. Before its stream arrives.
  void set_buffers(std::size_t place, const std::vector<RankBuffers>& buffers) noexcept;
  /// The rank's stream has come to it. The first to come sets the deadline. With a `refusal` the rank cannot take part:
  /// nothing is done, and all ranks get refusal().
  void arrive(std::size_t place, const std::exception_ptr& refusal = nullptr) noexcept;
  /// When all have arrived: does shares until none is left to begin. Any number of threads. Where there is little to do
  /// the last one to arrive has done all of them.
  void run_shares() noexcept;
  /// Whether more threads than one of each rank are of use.
  [[nodiscard]] static bool wants_helpers(const CollectiveRequests& requests) noexcept;
  /// When all shares are done: why they were not.
  [[nodiscard]] const std::exception_ptr& failure() const noexcept { return failure_; }
  /// As that, but the communicator is good: a CollectiveError RankFailed, of the first of those that could not take
  /// part.
  [[nodiscard]] const std::exception_ptr& refusal() const noexcept { return refusal_; }

  Timeline arrived;  ///< has come to ranks() when all have, or it was aborted
  Timeline done;     ///< has come to shares() when all shares are done

  /// When it is aborted, if not all have arrived by then. Always ahead while nobody has come, so that it is asked
  /// again; Time::max() when nobody is waited for any more.
  [[nodiscard]] Time deadline() const;
  /// If the deadline has come by `now`: as abort(), with a CollectiveError Timeout that names who did not arrive.
  /// Returns the deadline from here on. See DeadlineWatch.
  std::optional<Time> check_deadlines(Time now) noexcept;
  /// Ends it with that failure, for all ranks. Does nothing if all have arrived, or it was aborted before.
  void abort(const std::exception_ptr& why) noexcept;

 private:
  [[nodiscard]] std::exception_ptr overdue() const noexcept;
  [[nodiscard]] std::exception_ptr rank_failed(std::size_t place, const std::exception_ptr& refusal) const noexcept;
  [[nodiscard]] std::string overdue_text() const;

  const CollectiveRequests requests_;
  const std::vector<DeviceId> places_;
  const std::chrono::milliseconds timeout_;
  const std::size_t shares_;
  std::atomic<std::size_t> next_share_{0};
  std::vector<RankBuffers> buffers_;  // of all places for the first operation, then for the second
  mutable std::mutex mutex_;
  Time deadline_;  // once somebody has come; guarded by mutex_, as all below
  std::uint64_t sequence_ = 0;
  std::vector<bool> has_arrived_;
  std::size_t missing_;
  std::exception_ptr failure_;     // written before `arrived` has come to ranks(), read after
  std::exception_ptr refusal_;     // as failure_
  std::size_t refused_place_ = 0;  // whose that is
};

}  // namespace cox::detail
