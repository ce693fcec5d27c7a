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

/// Which side of a helper's failure has delivered it: see FailureReports. Any thread.
struct SharedDelivery {
  std::atomic<bool> by_helper{false};   ///< a future of the helper
  std::atomic<bool> by_callers{false};  ///< a stream that called the helper
};

/// The failures of a stream's queued work that have not been delivered yet (L12). Each has the position in the stream
/// at which it happened, so that a read or sync takes what came before it and nothing that came later. Any thread.
class StreamErrors {
 public:
  /// As many are kept (L7); the rest is counted.
  static constexpr std::size_t max_failures = 64;

  /// Throws std::bad_alloc.
  explicit StreamErrors(const Location& location = {}) : location_(location) {
    failures_.reserve(max_failures);
  }  // so that add() finds room
  StreamErrors(const StreamErrors&) = delete;
  StreamErrors& operator=(const StreamErrors&) = delete;
  /// Reports what is left as task errors.
  ~StreamErrors();

  void add(std::uint64_t position, std::exception_ptr error) noexcept;
  [[nodiscard]] bool empty() const noexcept { return !has_failures_.load(std::memory_order_acquire); }
  /// ServerError Unhealthy with all failures before `position`, which count as delivered; null if there are none.
  [[nodiscard]] std::exception_ptr take_before(std::uint64_t position, const Location& location,
                                               std::source_location site);
  /// As take_before, for the result of a future: they count as delivered when that is taken, and return here if it is
  /// dropped.
  [[nodiscard]] static TakenError take_for_future(const std::shared_ptr<StreamErrors>& from, std::uint64_t position,
                                                  const Location& location, std::source_location site);
  /// A wait at a position, from when its turn has come to when it has taken its failures: what fails before it
  /// meanwhile is left to it, and not taken by waits behind it. Held by whoever is to take them.
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
    std::shared_ptr<StreamErrors> errors_;  // null: it has been moved from
    std::uint64_t position_;
  };

  /// `earlier`, from take_for_future(), and what has failed before `position` since, as one error. Throws
  /// std::bad_alloc; then `earlier` is as it was.
  [[nodiscard]] static TakenError take_later(TakenError earlier, const std::shared_ptr<StreamErrors>& from,
                                             std::uint64_t position, const Location& location,
                                             std::source_location site);
  /// The failure of an operation at `position` whose future is to deliver it: joins the stream's if that is dropped.
  [[nodiscard]] static TakenError of_operation(const std::shared_ptr<StreamErrors>& stream, std::uint64_t position,
                                               std::exception_ptr error) noexcept;
  /// As take_before for all that is known now, but for failures within profiles that are open: these are the profiles'.
  [[nodiscard]] std::exception_ptr take_known(const Location& location, std::source_location site);
  /// As take_known, but they stay.
  [[nodiscard]] std::exception_ptr peek(const Location& location, std::source_location site) const;
  /// All that is left, at the end of the stream, but for what waits whose turn has come are to take; null: nothing. It
  /// counts as delivered to everybody whom it was reported to.
  [[nodiscard]] std::exception_ptr take_remaining(const Location& location, std::source_location site);

  /// Removes the failures after `first` and before `last`, and returns the first of them; null if there are none.
  std::exception_ptr remove_between(std::uint64_t first, std::uint64_t last) noexcept;

  // Profiles. `begin`: the position where one begins, which is no other's.

  /// Failures behind `begin` are the profile's from now on. Throws std::bad_alloc.
  void begin_profile(std::uint64_t begin);
  /// Only those before `end` are.
  void bound_profile(std::uint64_t begin, std::uint64_t end) noexcept;
  /// The stream has come to the end of the profile; what is left of its failures is the stream's again.
  void end_profile(std::uint64_t begin) noexcept;
  /// Removes the failures after `first` and before `last`; returns the first of them for the profile's future, from
  /// which all of them return here if it is dropped.
  [[nodiscard]] static TakenError take_for_profile(const std::shared_ptr<StreamErrors>& from, std::uint64_t first,
                                                   std::uint64_t last);

 private:
  friend class FailureReports;

  enum class Side : std::uint8_t { Helper, Caller };
  struct Failure {
    std::uint64_t position;
    std::exception_ptr error;
    std::shared_ptr<SharedDelivery> shared = nullptr;  ///< null: nobody else has it
    Side side = Side::Caller;

    /// It has been delivered on the other side.
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
  /// Takes those that `which` is true for, under the lock; drops the stale ones.
  template <class Which>
  [[nodiscard]] Taken take(const Which& which);
  [[nodiscard]] Taken take_before(std::uint64_t position);
  void begin_turn(std::uint64_t position) noexcept;
  void end_turn(std::uint64_t position) noexcept;
  [[nodiscard]] bool is_left_to_other(const Failure& failure, std::uint64_t position) const noexcept;
  [[nodiscard]] bool is_of_profile(const Failure& failure) const noexcept;
  static std::exception_ptr unhealthy(const Taken& taken, const Location& location, std::source_location site);
  static std::exception_ptr deliver(const Taken& taken, const Location& location, std::source_location site);

  // Under the lock, when failures_ has changed. Release: who finds that there are failures sees what led to them.
  void update_has_failures() noexcept { has_failures_.store(!failures_.empty(), std::memory_order_release); }

  // Asked before the lock is: its line of memory goes to and fro between who queues work and who waits for it.
  std::atomic<bool> has_failures_{false};
  const Location location_;
  mutable std::mutex mutex_;
  std::vector<Failure> failures_;     // guarded by mutex_, as all below
  std::vector<Profile> profiles_;     // that are open
  std::vector<std::uint64_t> turns_;  // positions
  std::size_t dropped_ = 0;
};

}  // namespace cox::detail
