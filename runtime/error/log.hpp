#pragma once

#include <coxswain/device_handle/base/visibility.hpp>
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

/// The part of the library that logs. The loggers are named "cox.device_handle", "cox.runtime" and so on.
enum class LogSubsystem : std::uint8_t { DeviceHandle, Runtime, Memory, Host, Cuda, Collectives };

inline constexpr std::size_t log_subsystem_count = static_cast<std::size_t>(LogSubsystem::Collectives) + 1;

struct LogOptions {
  LogLevel level = LogLevel::Warn;  ///< level of all subsystems
  /// Levels of single subsystems, which override `level`; log::set_level changes a level later.
  std::array<std::optional<LogLevel>, log_subsystem_count> own_levels{};
  bool to_stderr = true;
  std::optional<std::filesystem::path> file;  ///< messages are appended to this file
  /// Called for each message on the log's own thread; must not throw and must not log.
  std::function<void(LogSubsystem, LogLevel, std::string_view)> callback;
  std::size_t queue_capacity = 8192;  ///< messages; when the queue is full, the oldest are dropped (L7)

  [[nodiscard]] LogLevel level_of(LogSubsystem subsystem) const noexcept {
    return own_levels[static_cast<std::size_t>(subsystem)].value_or(level);
  }
};

/// The library's log. It is off until start(); while it is off, a call of write() costs one relaxed load. While it is
/// on, messages pass through a bounded queue to a thread of the log, so that no caller waits for a disk or a terminal.
/// All functions: any thread.
namespace log {

/// Starts logging, and installs the log as the callback for task errors that no caller receives (L12). Replaces what an
/// earlier start() set up. Throws Error if the file cannot be opened.
void start(LogOptions options);
/// Starts the log unless it is running, but installs it as the callback for task errors only if no callback is set.
/// Returns whether it started the log.
bool start_if_stopped(LogOptions options);
/// Writes all queued messages, joins the log's thread and removes its callback for task errors. Idempotent.
void stop() noexcept;
/// Blocks until all messages written before have reached the sinks. For tests, and for use right before an abort.
void flush();

void set_level(LogSubsystem subsystem, LogLevel level) noexcept;
[[nodiscard]] bool enabled(LogSubsystem subsystem, LogLevel level) noexcept;

namespace detail {
COX_VISIBILITY_DEFAULT inline constinit std::array<std::atomic<LogLevel>, log_subsystem_count> levels{
    LogLevel::Off, LogLevel::Off, LogLevel::Off, LogLevel::Off, LogLevel::Off, LogLevel::Off};
void emit(LogSubsystem subsystem, LogLevel level, const std::string& message) noexcept;
}  // namespace detail

inline bool enabled(LogSubsystem subsystem, LogLevel level) noexcept {
  // Relaxed: the level is an independent value; the backend is protected by its own mutex.
  return level >= detail::levels[static_cast<std::size_t>(subsystem)].load(std::memory_order_relaxed);
}

/// Logs the string that `make_message()` returns; does not call it if the level is off.
template <class MakeMessage>
void write(LogSubsystem subsystem, LogLevel level, MakeMessage&& make_message) {
  if (!enabled(subsystem, level)) [[likely]]
    return;
  detail::emit(subsystem, level, std::forward<MakeMessage>(make_message)());
}

}  // namespace log

[[nodiscard]] std::string_view to_string(LogSubsystem subsystem) noexcept;

}  // namespace cox
