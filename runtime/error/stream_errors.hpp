#pragma once

#include <coxswain/runtime/base/location.hpp>
#include <coxswain/runtime/error/taken_error.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <source_location>
#include <utility>
#include <vector>

namespace cox::detail {

/// Which side has delivered a failure that a helper shares with its callers: see FailureReports. Any thread.
struct SharedDelivery {
  std::atomic<bool> by_helper{false};   ///< delivered by a future of the helper
  std::atomic<bool> by_callers{false};  ///< delivered by a stream that called the helper
};

/// The failures of a stream's queued work that have not been delivered yet (L12). Each has the stream position at which
/// it happened, so that a read or sync takes the failures before its own position and no later ones. Any thread.
class StreamErrors {
 public:
  /// The maximum number of failures that are kept (L7); further ones are only counted.
  static constexpr std::size_t max_failures = 64;

  /// Throws std::bad_alloc.
  explicit StreamErrors(const Location& location = {}) : location_(location) {
    failures_.reserve(max_failures);
  }  // so that add() does not allocate
  StreamErrors(const StreamErrors&) = delete;
  StreamErrors& operator=(const StreamErrors&) = delete;
  /// Reports the undelivered failures as a task error.
  ~StreamErrors();

  void add(std::uint64_t position, std::exception_ptr error) noexcept;
  [[nodiscard]] bool empty() const noexcept { return !has_failures_.load(std::memory_order_acquire); }
  /// Takes the failures before `position`, except those that an earlier wait is to take (Turn), and marks them
  /// delivered. Returns them as ServerError Unhealthy, or null if there are none.
  [[nodiscard]] std::exception_ptr take_before(std::uint64_t position, const Location& location,
                                               std::source_location site);
  /// Takes the same failures as take_before(), for the result of a future. They count as delivered when that result is
  /// taken, and return to `from` if the future is dropped.
  [[nodiscard]] static TakenError take_for_future(const std::shared_ptr<StreamErrors>& from, std::uint64_t position,
                                                  const Location& location, std::source_location site);
  /// Registers a wait (a read or sync) at `position`, from the time at which its turn comes in the stream until it has
  /// taken its failures. A failure before `position` that is added during that time is left to this wait; waits at
  /// later positions do not take it. Owned by the operation that will take the failures.
  class Turn {
   public:
    Turn(std::shared_ptr<StreamErrors> errors, std::uint64_t position) noexcept
        : errors_(std::move(errors)), position_(position) {
      errors_->begin_turn(position_);
    }
    Turn(Turn&&) noexcept = default;
    Turn& operator=(Turn&&) = delete;
    ~Turn() {
      if (errors_ != nullptr) errors_->end_turn(position_);
    }

   private:
    std::shared_ptr<StreamErrors> errors_;  // null if moved from
    std::uint64_t position_;
  };

  /// Joins `earlier`, which take_for_future() returned, and the failures before `position` that were added since, into
  /// one error. Throws std::bad_alloc; then the receipt of `earlier` is unchanged.
  [[nodiscard]] static TakenError take_later(TakenError earlier, const std::shared_ptr<StreamErrors>& from,
                                             std::uint64_t position, const Location& location,
                                             std::source_location site);
  /// The failure `error` of an operation at `position`, for the future of that operation to deliver. If the future is
  /// dropped, the failure is added to `stream`.
  [[nodiscard]] static TakenError of_operation(const std::shared_ptr<StreamErrors>& stream, std::uint64_t position,
                                               std::exception_ptr error) noexcept;
  /// Takes all failures that are known now and marks them delivered, except failures within open profiles, which the
  /// profiles deliver, and those that a wait is to take (Turn). Returns ServerError Unhealthy, or null if there are
  /// none.
  [[nodiscard]] std::exception_ptr take_known(const Location& location, std::source_location site);
  /// Returns the error that take_known() would return, but leaves the failures in place.
  [[nodiscard]] std::exception_ptr peek(const Location& location, std::source_location site) const;
  /// At the end of the stream: takes all failures, except those that a wait is to take (Turn). Returns ServerError
  /// Unhealthy, or null if there are none. The failures count as delivered on every stream that they were reported to.
  [[nodiscard]] std::exception_ptr take_remaining(const Location& location, std::source_location site);

  /// Removes the failures after `first` and before `last`. Returns the earliest of them, or null if there are none.
  std::exception_ptr remove_between(std::uint64_t first, std::uint64_t last) noexcept;

  // Profiles. `begin` is the position at which a profile begins; no two profiles begin at the same position.

  /// From now on, failures after `begin` belong to the profile. Throws std::bad_alloc.
  void begin_profile(std::uint64_t begin);
  /// Limits the profile to the failures before `end`.
  void bound_profile(std::uint64_t begin, std::uint64_t end) noexcept;
  /// The stream has reached the end of the profile. Failures that the profile has not taken belong to the stream again.
  void end_profile(std::uint64_t begin) noexcept;
  /// Takes the failures after `first` and before `last`. Returns the earliest one, for the profile's future to deliver.
  /// If that future is dropped, all of them return to `from`.
  [[nodiscard]] static TakenError take_for_profile(const std::shared_ptr<StreamErrors>& from, std::uint64_t first,
                                                   std::uint64_t last);

 private:
  friend class FailureReports;

  enum class Side : std::uint8_t { Helper, Caller };
  struct Failure {
    std::uint64_t position;
    std::exception_ptr error;
    std::shared_ptr<SharedDelivery> shared = nullptr;  ///< null: not shared with other streams
    Side side = Side::Caller;

    /// Whether the other side has delivered it.
    [[nodiscard]] bool is_stale() const noexcept {
      return shared != nullptr && (side == Side::Helper ? shared->by_callers : shared->by_helper).load();
    }
    void note_delivered() const noexcept {
      if (shared != nullptr) (side == Side::Helper ? shared->by_helper : shared->by_callers).store(true);
    }
  };
  struct Taken {
    std::vector<Failure> failures;
    std::size_t dropped = 0;
  };
  struct Profile {
    std::uint64_t begin;
    std::uint64_t end;
  };
  class Receipt;

  void add(Failure failure) noexcept;
  /// Takes the failures for which `which` returns true, and drops stale ones. Calls `which` with the lock held.
  template <class Which>
  [[nodiscard]] Taken take(const Which& which);
  [[nodiscard]] Taken take_before(std::uint64_t position);
  void begin_turn(std::uint64_t position) noexcept;
  void end_turn(std::uint64_t position) noexcept;
  [[nodiscard]] bool is_left_to_other(const Failure& failure, std::uint64_t position) const noexcept;
  [[nodiscard]] bool is_of_profile(const Failure& failure) const noexcept;
  static std::exception_ptr unhealthy(const Taken& taken, const Location& location, std::source_location site);
  static std::exception_ptr deliver(const Taken& taken, const Location& location, std::source_location site);

  // Lock held; called after failures_ has changed. Release: pairs with the acquire in empty(), so that a thread that
  // finds failures also sees what happened before they were added.
  void update_has_failures() noexcept { has_failures_.store(!failures_.empty(), std::memory_order_release); }

  // Checked before locking: the cache line of the mutex moves back and forth between the threads that queue work and
  // those that wait for it.
  std::atomic<bool> has_failures_{false};
  const Location location_;
  mutable std::mutex mutex_;
  std::vector<Failure> failures_;     // guarded by mutex_, as all below
  std::vector<Profile> profiles_;     // the open ones
  std::vector<std::uint64_t> turns_;  // positions of registered waits (Turn)
  std::size_t dropped_ = 0;
};

}  // namespace cox::detail
