#include <coxswain/runtime/client/apply_settings.hpp>

#include <coxswain/runtime/config/process_settings.hpp>
#include <coxswain/runtime/config/profile_level.hpp>
#include <coxswain/runtime/trace/trace_at_exit.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace cox {
namespace {

bool profiles_are_wanted(const Settings& settings) {
  return settings.get<ProfileLevel>("profiling.level") != ProfileLevel::Disabled;
}

bool log_is_wanted(const Settings& settings) {
  return profiles_are_wanted(settings) || std::ranges::any_of(known_settings(), [&](const Setting& setting) {
           return setting.key.starts_with("log.") && settings.given(setting.key);
         });
}

// The key of a subsystem's log level: "log" followed by the subsystem's name without "cox".
std::optional<LogLevel> own_level(const Settings& settings, LogSubsystem subsystem) {
  const std::string_view name = to_string(subsystem);
  const std::string key = "log" + std::string(name.substr(name.find('.')));
  if (!settings.given(key)) return std::nullopt;
  return settings.get<LogLevel>(key);
}

void start_log(const Settings& settings) {
  try {
    LogOptions options = log_options(settings);
    // Profiles are logged at level info: enable that level if profiles are requested.
    auto& runtime_level = options.own_levels[static_cast<std::size_t>(LogSubsystem::Runtime)];
    if (profiles_are_wanted(settings) && !runtime_level) runtime_level = std::min(options.level, LogLevel::Info);
    (void)log::start_if_stopped(std::move(options));
  } catch (const Error& error) {
    const Setting& file = find_setting("log.file");
    throw ConfigError(ConfigError::Kind::Unreadable, "log.file is " + in_quotes(to_string(file, settings.value(file))) +
                                                         " (" + to_string(settings.source(file)) +
                                                         "): " + error.what());
  }
}

void log_what_is_given(const Settings& settings) {
  for (const Setting& setting : known_settings())
    if (settings.given(setting.key))
      log::write(LogSubsystem::Runtime, LogLevel::Debug, [&] {
        return std::string(setting.key) + " is " + to_string(setting, settings.value(setting)) + " (" +
               to_string(settings.source(setting)) + ")";
      });
}

// Starts a trace once only: it does not override traces that the program starts or stops afterwards.
void start_trace(const Settings& settings) {
  static bool started = false;  // guarded by the mutex of apply_settings()
  const auto path = settings.get<std::string>("trace.file");
  const trace::Options options{.capacity = path.empty() ? 0 : settings.get<std::uint64_t>("trace.capacity"),
                               .nvtx = settings.get<bool>("trace.nvtx")};
  if (started || (path.empty() && !options.nvtx)) return;
  try {
    if (path.empty()) {
      trace::start(options);
    } else {
      trace::start_until_exit(options, path);
    }
    started = true;
  } catch (const Error& error) {
    throw ConfigError(ConfigError::Kind::Unreadable, "trace.file is " + in_quotes(path) + ", trace.nvtx is " +
                                                         (options.nvtx ? "true" : "false") + ": " + error.what());
  }
}

}  // namespace

void apply_settings() {
  static std::mutex mutex;
  static std::atomic<std::uint64_t> applied{0};
  if (applied == detail::settings_version()) return;
  const std::lock_guard lock(mutex);
  const std::uint64_t version = detail::settings_version();  // before settings(): a change in between is applied later
  const Settings now = settings();
  offer_default_device_thread_options(default_device_thread_options(now));
  if (log_is_wanted(now)) start_log(now);
  log_what_is_given(now);
  start_trace(now);
  applied = version;
}

LogOptions log_options(const Settings& settings) {
  LogOptions options;
  options.level = settings.get<LogLevel>("log.level");
  for (std::size_t i = 0; i < options.own_levels.size(); ++i)
    options.own_levels[i] = own_level(settings, static_cast<LogSubsystem>(i));
  options.to_stderr = settings.get<bool>("log.stderr");
  if (const auto& file = settings.get<std::string>("log.file"); !file.empty()) options.file = file;
  options.queue_capacity = settings.get<std::uint64_t>("log.queue_capacity");
  return options;
}

DeviceThreadOptions default_device_thread_options(const Settings& settings) {
  DeviceThreadOptions options;
  options.queue_capacity = settings.get<std::uint64_t>("device_thread.queue_capacity");
  options.queue_policy = settings.get<QueuePolicy>("device_thread.queue_policy");
  options.spin = settings.get<std::chrono::nanoseconds>("device_thread.spin");
  // Rounded up: a threshold below a millisecond must not become 0, which disables the reports.
  options.stall_threshold = std::chrono::ceil<std::chrono::milliseconds>(
      settings.get<std::chrono::nanoseconds>("device_thread.stall_threshold"));
  options.histograms = settings.get<bool>("device_thread.histograms");
  return options;
}

}  // namespace cox
