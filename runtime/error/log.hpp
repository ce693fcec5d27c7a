#pragma once

#include <coxswain/runtime/error/log_level.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace cox {

/// Who logs. The loggers are named "cox.device_handle", "cox.runtime" and so on.
enum class LogSubsystem : std::uint8_t { DeviceHandle, Runtime, Memory, Host, Cuda, Collectives };

inline constexpr std::size_t log_subsystem_count = static_cast<std::size_t>(LogSubsystem::Collectives) + 1;

struct LogOptions {
  LogLevel level = LogLevel::Warn;  ///< of all subsystems
  /// Of single subsystems; log::set_level changes them.
  std::array<std::optional<LogLevel>, log_subsystem_count> own_levels{};
  bool to_stderr = true;
  std::optional<std::filesystem::path> file;  ///< appended to
  /// Called for each message on the log's own thread; must not throw and must not log.
  std::function<void(LogSubsystem, LogLevel, std::string_view)> callback;
  std::size_t queue_capacity = 8192;  ///< messages; beyond it the oldest are dropped (L7)

  [[nodiscard]] LogLevel level_of(LogSubsystem subsystem) const noexcept {
    return own_levels[static_cast<std::size_t>(subsystem)].value_or(level);
  }
};

/// The library's log. Off until start(): then a call of write() costs one relaxed load. On, messages go to a thread of
/// the log's own through a bounded queue, so that nobody waits for a disk or a terminal. All functions: any thread.
namespace log {

/// Starts logging and makes the log the sink of the task errors that nobody else takes (L12). Replaces what an earlier
/// start() set up. Throws Error if the file cannot be opened.
void start(LogOptions options);
/// Starts the log unless it runs, but takes the task errors only if no callback is set. Returns whether it did.
bool start_if_stopped(LogOptions options);
/// Writes out what is queued, joins the log's thread and lets go of the task errors. Idempotent.
void stop() noexcept;
/// Blocks until what was written before is with the sinks. For tests and for the moment before an abort.
void flush();

void set_level(LogSubsystem subsystem, LogLevel level) noexcept;
[[nodiscard]] bool enabled(LogSubsystem subsystem, LogLevel level) noexcept;

namespace detail {
inline constinit std::array<std::atomic<LogLevel>, log_subsystem_count> levels{
    LogLevel::Off, LogLevel::Off, LogLevel::Off, LogLevel::Off, LogLevel::Off, LogLevel::Off};
void emit(LogSubsystem subsystem, LogLevel level, const std::string& message) noexcept;
}  // namespace detail

inline bool enabled(LogSubsystem subsystem, LogLevel level) noexcept {
  // Relaxed: a level is a figure on its own; what it guards is behind the backend's mutex.
  return level >= detail::levels[static_cast<std::size_t>(subsystem)].load(std::memory_order_relaxed);
}

/// Logs what `make_message()` returns; does not call it when the level is off.
template <class MakeMessage>
void write(LogSubsystem subsystem, LogLevel level, MakeMessage&& make_message) {
  if (!enabled(subsystem, level)) [[likely]]
    return;
  detail::emit(subsystem, level, std::forward<MakeMessage>(make_message)());
}

}  // namespace log

[[nodiscard]] std::string_view to_string(LogSubsystem subsystem) noexcept;

}  // namespace cox
