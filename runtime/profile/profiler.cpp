#include <coxswain/runtime/profile/profiler.hpp>

#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/runtime/error/log.hpp>
#include <coxswain/runtime/profile/profile_table.hpp>

#include <boost/asio/bind_executor.hpp>
#include <boost/asio/execution/blocking.hpp>

#include <exception>
#include <mutex>
#include <new>
#include <type_traits>
#include <utility>

namespace cox {
namespace {

/// Executor that runs a handler inline, on the completing thread. The handler of this file is short, and running it
/// inline puts the row into the table before the same thread completes a later sync.
struct AtOnce {
  // Asio's post requires this property; the executor ignores it, since it exists to run handlers inline.
  [[nodiscard]] AtOnce require(boost::asio::execution::blocking_t::never_t) const noexcept { return *this; }
  template <class F>
  void execute(F&& f) const {
    std::decay_t<F>(std::forward<F>(f))();
  }
  bool operator==(const AtOnce&) const noexcept = default;
};

void log_line(std::string_view duration, std::string_view name) {
  log::write(LogSubsystem::Runtime, LogLevel::Info,
             [&] { return "| " + std::string(duration) + " | " + std::string(name); });
}

}  // namespace

/// State shared between the profiler and the pending durations, which may complete after the profiler is destroyed.
class Profiler::Record {
 public:
  Record(bool lines, const Limits& limits) : lines_(lines), limits_(limits), table_(limits.names) {}

  /// Counts a duration as pending. Returns false if the limit is reached; the duration is then counted as left out.
  [[nodiscard]] bool begin() noexcept {
    const std::lock_guard lock(mutex_);
    if (pending_ >= limits_.pending) {
      table_.count_omitted();
      return false;
    }
    ++pending_;
    return true;
  }
  void complete(const std::string& name, const std::exception_ptr& error, const ProfileTicks& ticks) noexcept {
    try {
      keep(name, error, ticks);
      if (error != nullptr) {
        log_line("failed", name + ": " + describe(error));
      } else if (lines_) {
        log_line(rounded_duration(ticks.duration()), name);
      }
    } catch (...) {  // NOLINT(bugprone-empty-catch): no memory for a log line; the row is counted already
    }
  }
  void leave_out() noexcept {
    const std::lock_guard lock(mutex_);
    --pending_;
    table_.count_omitted();
  }
  [[nodiscard]] std::string table() const {
    const std::lock_guard lock(mutex_);
    return table_.to_string();
  }
  [[nodiscard]] ProfileTable take() noexcept {
    const std::lock_guard lock(mutex_);
    return std::exchange(table_, ProfileTable(limits_.names));
  }

 private:
  void keep(const std::string& name, const std::exception_ptr& error, const ProfileTicks& ticks) noexcept {
    const std::lock_guard lock(mutex_);
    --pending_;
    try {
      if (error == nullptr) return table_.add(name, ticks.duration());
    } catch (...) {  // NOLINT(bugprone-empty-catch): no memory for the row
    }
    table_.count_omitted();
  }

  const bool lines_;
  const Limits limits_;
  mutable std::mutex mutex_;
  std::size_t pending_ = 0;  // guarded by mutex_
  ProfileTable table_;       // guarded by mutex_
};

Profiler::Profiler(ProfileLevel level, Limits limits)
    : level_(level), limits_(limits), record_(std::make_shared<Record>(level >= ProfileLevel::Medium, limits)) {}

Profiler::~Profiler() = default;

void Profiler::executing(std::string_view name) const {
  if (level_ != ProfileLevel::Minimal) return;
  log::write(LogSubsystem::Runtime, LogLevel::Info, [&] { return "Executing " + std::string(name); });
}

void Profiler::record(std::string name, ProfileDuration duration) {
  if (!measures() || !record_->begin()) return;
  auto count = [record = std::weak_ptr<Record>(record_), name = std::move(name)](const std::exception_ptr& error,
                                                                                 const ProfileTicks& ticks) {
    if (const auto alive = record.lock()) alive->complete(name, error, ticks);
  };
  try {
    // Called without a lock: a duration that is already available completes inside this call.
    duration.async_get(boost::asio::bind_executor(AtOnce(), std::move(count)));
  } catch (const std::bad_alloc&) {
    record_->leave_out();
  }
}

std::string Profiler::table() const { return record_->table(); }

void Profiler::summarise() noexcept {
  if (!measures()) return;
  try {
    const ProfileTable table = record_->take();
    if (table.empty()) return;
    // The leading newline keeps the first row of the table off the line with the log prefix.
    log::write(LogSubsystem::Runtime, LogLevel::Info, [&] { return '\n' + table.to_string(); });
  } catch (const std::bad_alloc&) {
    record_->leave_out();
  }
}

}  // namespace cox
