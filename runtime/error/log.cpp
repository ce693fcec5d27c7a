#include <coxswain/runtime/error/log.hpp>

#include <coxswain/device_handle/base/error.hpp>
#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/device_handle/thread/stall.hpp>
#include <coxswain/runtime/base/location.hpp>

#include <spdlog/async.h>
#include <spdlog/async_logger.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <chrono>
#include <cstdio>
#include <future>
#include <memory>
#include <mutex>
#include <vector>

namespace cox {
namespace {

constexpr std::array<std::string_view, log_subsystem_count> names{
    "cox.device_handle", "cox.runtime", "cox.memory", "cox.host", "cox.cuda", "cox.collectives"};

spdlog::level::level_enum to_spdlog(LogLevel level) noexcept {
  static constexpr std::array levels{spdlog::level::trace, spdlog::level::debug, spdlog::level::info,
                                     spdlog::level::warn,  spdlog::level::err,   spdlog::level::off};
  static_assert(levels.size() == static_cast<std::size_t>(LogLevel::Off) + 1);
  return levels[static_cast<std::size_t>(level)];
}

LogLevel from_spdlog(spdlog::level::level_enum level) noexcept {
  switch (level) {
    case spdlog::level::trace: return LogLevel::Trace;
    case spdlog::level::debug: return LogLevel::Debug;
    case spdlog::level::info: return LogLevel::Info;
    case spdlog::level::warn: return LogLevel::Warn;
    default: return LogLevel::Error;
  }
}

/// Passes messages to the user's callback. At a flush it notifies the waiting threads, so that log::flush can wait for
/// one.
class CallbackSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  using Callback = std::function<void(LogSubsystem, LogLevel, std::string_view)>;
  explicit CallbackSink(Callback callback) : callback_(std::move(callback)) {}
  CallbackSink(const CallbackSink&) = delete;
  CallbackSink& operator=(const CallbackSink&) = delete;
  // The log's thread used this object under the mutex. The reference count is maintained inside the spdlog library,
  // which ThreadSanitizer does not instrument; locking the mutex shows ThreadSanitizer that the last use happened
  // before.
  ~CallbackSink() override { const std::lock_guard lock(mutex_); }

  void wake_at_flush(std::promise<void> promise) {
    const std::lock_guard lock(waiting_mutex_);
    waiting_.push_back(std::move(promise));
  }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    if (!callback_) return;
    const std::string_view name(message.logger_name.data(), message.logger_name.size());
    for (std::size_t i = 0; i < names.size(); ++i)
      if (names[i] == name)
        callback_(static_cast<LogSubsystem>(i), from_spdlog(message.level),
                  std::string_view(message.payload.data(), message.payload.size()));
  }
  void flush_() override {
    const std::lock_guard lock(waiting_mutex_);
    for (std::promise<void>& promise : waiting_) promise.set_value();
    waiting_.clear();
  }

 private:
  Callback callback_;
  std::mutex waiting_mutex_;
  std::vector<std::promise<void>> waiting_;
};

struct Backend {
  explicit Backend(LogOptions options)
      : pool(std::make_shared<spdlog::details::thread_pool>(options.queue_capacity, 1)),
        callback(std::make_shared<CallbackSink>(std::move(options.callback))) {
    std::vector<spdlog::sink_ptr> sinks;
    if (options.to_stderr) sinks.push_back(std::make_shared<spdlog::sinks::stderr_sink_mt>());
    if (options.file) sinks.push_back(std::make_shared<spdlog::sinks::basic_file_sink_mt>(options.file->string()));
    sinks.push_back(callback);  // Last: when it is flushed, the other sinks have been flushed.
    for (const std::string_view name : names) {
      loggers.push_back(std::make_shared<spdlog::async_logger>(std::string(name), sinks.begin(), sinks.end(), pool,
                                                               spdlog::async_overflow_policy::overrun_oldest));
      loggers.back()->set_level(spdlog::level::trace);  // log::enabled filters by level
      loggers.back()->flush_on(spdlog::level::err);
    }
  }

  std::shared_ptr<spdlog::details::thread_pool> pool;
  std::shared_ptr<CallbackSink> callback;
  std::vector<std::shared_ptr<spdlog::async_logger>> loggers;
};

using Levels = std::array<LogLevel, log_subsystem_count>;

constexpr Levels all_off{LogLevel::Off, LogLevel::Off, LogLevel::Off, LogLevel::Off, LogLevel::Off, LogLevel::Off};

Levels levels_of(const LogOptions& options) noexcept {
  Levels levels = all_off;
  for (std::size_t i = 0; i < levels.size(); ++i) levels[i] = options.level_of(static_cast<LogSubsystem>(i));
  return levels;
}

/// Stops the log when the process exits without log::stop().
struct Holder {
  std::mutex mutex;
  std::shared_ptr<Backend> backend;
  std::atomic<bool> took_task_errors{false};

  Holder() = default;
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;
  ~Holder() { swap_in(nullptr, all_off); }

  void swap_in(std::shared_ptr<Backend> next, const Levels& levels) noexcept {
    {
      const std::lock_guard lock(mutex);
      put_in(next, levels);
    }
    next.reset();  // Joins the old log's thread; the lock is not held.
  }
  bool put_in_if_empty(std::shared_ptr<Backend> next, const Levels& levels) noexcept {
    const std::lock_guard lock(mutex);
    if (backend) return false;
    put_in(next, levels);
    return true;
  }
  std::shared_ptr<Backend> get() {
    const std::lock_guard lock(mutex);
    return backend;
  }

 private:
  void put_in(std::shared_ptr<Backend>& next, const Levels& levels) noexcept {
    backend.swap(next);
    for (std::size_t i = 0; i < levels.size(); ++i) log::detail::levels[i].store(levels[i], std::memory_order_relaxed);
  }
};

Holder& holder() {
  static Holder instance;
  return instance;
}

/// Writes to the log, or to stderr if the log does not accept the message: its level may be off, or the log may have
/// stopped at process exit.
void log_or_print(LogLevel level, const std::string& text) {
  if (log::enabled(LogSubsystem::DeviceHandle, level)) {
    log::write(LogSubsystem::DeviceHandle, level, [&] { return text; });
  } else {
    std::fputs(("coxswain: " + text + "\n").c_str(), stderr);
  }
}

void log_task_error(const TaskError& task) {
  log_or_print(LogLevel::Error,
               "a task failed on " + Location{task.device, task.stream}.to_string() + ": " + describe(task.error));
}

// This callback stays set when the log stops: it then prints what the default callback would print. Removing it could
// remove a callback that the program has set since.
void log_stall(const StallReport& stall) { log_or_print(LogLevel::Warn, stall.to_string()); }

std::shared_ptr<Backend> make_backend(LogOptions options) {
  try {
    return std::make_shared<Backend>(std::move(options));
  } catch (const spdlog::spdlog_ex& error) {
    throw Error(std::string("the log cannot be started: ") + error.what());
  }
}

}  // namespace

std::string_view to_string(LogSubsystem subsystem) noexcept { return names[static_cast<std::size_t>(subsystem)]; }

namespace log {

void start(LogOptions options) {
  const Levels levels = levels_of(options);
  holder().swap_in(make_backend(std::move(options)), levels);
  set_task_error_callback(log_task_error);
  holder().took_task_errors = true;
  static_cast<void>(offer_stall_callback(log_stall));
}

bool start_if_stopped(LogOptions options) {
  if (holder().get()) return false;
  const Levels levels = levels_of(options);
  if (!holder().put_in_if_empty(make_backend(std::move(options)), levels)) return false;
  if (offer_task_error_callback(log_task_error)) holder().took_task_errors = true;
  static_cast<void>(offer_stall_callback(log_stall));
  return true;
}

void stop() noexcept {
  if (holder().took_task_errors.exchange(false)) set_task_error_callback(nullptr);
  holder().swap_in(nullptr, all_off);
}

void flush() {
  const auto backend = holder().get();
  if (!backend) return;
  std::promise<void> flushed;
  const std::future<void> done = flushed.get_future();
  backend->callback->wake_at_flush(std::move(flushed));
  // Repeat the request: a full queue drops its oldest messages, which may include a flush request.
  do backend->loggers.front()->flush();
  while (done.wait_for(std::chrono::milliseconds(100)) != std::future_status::ready);
}

void set_level(LogSubsystem subsystem, LogLevel level) noexcept {
  detail::levels[static_cast<std::size_t>(subsystem)].store(level, std::memory_order_relaxed);
}

void detail::emit(LogSubsystem subsystem, LogLevel level, const std::string& message) noexcept {
  try {
    if (const auto backend = holder().get())
      backend->loggers[static_cast<std::size_t>(subsystem)]->log(to_spdlog(level), message);
  } catch (...) {  // NOLINT(bugprone-empty-catch): a message that cannot be formed must not become a failure
  }
}

}  // namespace log
}  // namespace cox
