#pragma once

#include <coxswain/runtime/error/launch_error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace cox::test {

/// The first cause of poisoned memory (L14), as the oracle of random programs knows it: which operation failed. Which
/// exception that failed with is learned from the first report of it; all others must have the same. Any thread.
class ProgramCause {
 public:
  using Causes = std::vector<std::shared_ptr<ProgramCause>>;

  explicit ProgramCause(std::size_t step) : text_("step " + std::to_string(step)) {}
  /// One of these: the operation would have read memory that is poisoned with all of them.
  explicit ProgramCause(Causes causes) : causes_(std::move(causes)) {
    for (const auto& cause : causes_) text_ += (text_.empty() ? "" : " or ") + cause->text_;
  }

  /// Those that it may be; none: it is itself one operation's.
  [[nodiscard]] const Causes& causes() const noexcept { return causes_; }
  /// "step 12"
  [[nodiscard]] const std::string& text() const noexcept { return text_; }

  /// A report says that this is the exception. Returns whether it can be.
  [[nodiscard]] bool confirm(const std::exception_ptr& error) {
    const std::lock_guard lock(mutex_);
    if (error == nullptr || !may_be_locked(error)) return false;
    error_ = error;
    return true;
  }

 private:
  [[nodiscard]] bool may_be(const std::exception_ptr& error) const {
    const std::lock_guard lock(mutex_);
    return may_be_locked(error);
  }
  // Of each cause the lock is taken after the locks of those that may be it: they are newer.
  [[nodiscard]] bool may_be_locked(const std::exception_ptr& error) const {
    if (error_ != nullptr) return error_ == error;
    return causes_.empty() || std::ranges::any_of(causes_, [&](const auto& cause) { return cause->may_be(error); });
  }

  mutable std::mutex mutex_;
  std::exception_ptr error_;  // guarded by mutex_; null: no report yet
  const Causes causes_;
  std::string text_;
};

/// The cause of an operation that would have read memory with these, of which some may be null; null if all are.
[[nodiscard]] std::shared_ptr<ProgramCause> join(const ProgramCause::Causes& causes);

/// A failure that the stream of a program has to report.
struct ProgramFailure {
  enum class Kind : std::uint8_t {
    ArgumentCount,  ///< a launch that is refused when it is queued
    CubeCount,      ///< a launch whose cube count, of device memory, is too large
    Late,           ///< a kernel of Backend::fail_on()
    WriteSize,      ///< a write of a wrong size
    MissingFile,    ///< a write from a file that is not there
    Poisoned,       ///< an operation that would have read poisoned memory
    LateOrPoisoned,
    RankFailed,  ///< a collective or transfer of which a rank would have read poisoned memory
  };

  [[nodiscard]] static const char* text_of(Kind kind) noexcept;
  /// "an operation on poisoned memory, step 20, from step 12"
  [[nodiscard]] std::string text() const;
  /// Whether `error` is this failure. Learns from it which exception the first cause is. `late_kind`: of the backend.
  [[nodiscard]] bool is(const std::exception_ptr& error, LaunchError::Kind late_kind) const;

  Kind kind = Kind::Poisoned;
  std::shared_ptr<ProgramCause> cause;  ///< of what the operation should have written
  std::size_t step = 0;
};

}  // namespace cox::test
