#include <coxswain/servers/host/host_options.hpp>

#include <coxswain/runtime/config_error.hpp>

#include <charconv>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace cox {
namespace {

std::mutex mutex;
std::optional<HostOptions> chosen;  // guarded by mutex

template <class T>
void read_environment(const char* name, T& setting) {
  const char* text = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nobody of ours calls setenv
  if (text == nullptr) return;
  const std::string_view view(text);
  std::uint64_t value = 0;
  const auto [end, code] = std::from_chars(view.data(), view.data() + view.size(), value);
  if (code != std::errc() || end != view.data() + view.size())
    throw ConfigError(ConfigError::Kind::Malformed,
                      std::string(name) + " in the environment is \"" + text + "\": expected a whole number");
  if (value < 1 || value > std::numeric_limits<T>::max())
    throw ConfigError(ConfigError::Kind::OutOfRange, std::string(name) + " in the environment is " + text +
                                                         ": expected 1 to " +
                                                         std::to_string(std::numeric_limits<T>::max()));
  setting = static_cast<T>(value);
}

HostOptions options_locked() {
  if (chosen) return *chosen;
  HostOptions options;
  read_environment("COX_HOST_DEVICES", options.device_count);
  read_environment("COX_HOST_THREADS", options.threads_per_device);
  read_environment("COX_HOST_MEMORY", options.memory_capacity);
  return options;
}

void require_positive(const HostOptions& options) {
  if (options.device_count == 0 || options.threads_per_device == 0 || options.memory_capacity == 0)
    throw ConfigError(
        ConfigError::Kind::OutOfRange,
        "host options: device_count, threads_per_device and memory_capacity must be at least 1, but are " +
            std::to_string(options.device_count) + ", " + std::to_string(options.threads_per_device) + " and " +
            std::to_string(options.memory_capacity));
}

}  // namespace

HostOptions host_options() {
  const std::lock_guard lock(mutex);
  return options_locked();
}

void set_host_options(const HostOptions& options) {
  require_positive(options);
  const std::lock_guard lock(mutex);
  chosen = options;
}

void reset_host_options() noexcept {
  const std::lock_guard lock(mutex);
  chosen.reset();
}

std::uint16_t host_device_count() { return host_options().device_count; }

void set_host_device_count(std::uint16_t count) {
  const std::lock_guard lock(mutex);
  HostOptions options = options_locked();
  options.device_count = count;
  require_positive(options);
  chosen = options;
}

}  // namespace cox
