#include <coxswain/runtime/config/process_settings.hpp>

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>

namespace cox {
namespace {

struct Process {
  std::mutex mutex;
  std::optional<SettingsOrigin> origin;                     // file and environment, as they were read
  std::map<std::string, SettingValue, std::less<>> chosen;  // set by code
  std::optional<Settings> in_force;                         // the result of these two
  std::atomic<std::uint64_t> version{1};
};

Process& process() {
  static auto& instance = *new Process;  // never destroyed: devices may be opened from static destructors
  return instance;
}

}  // namespace

Settings settings() {
  const std::lock_guard lock(process().mutex);
  if (!process().origin) process().origin.emplace(SettingsOrigin::of_process());
  if (!process().in_force) process().in_force.emplace(*process().origin, process().chosen);
  return *process().in_force;
}

void set_settings(std::initializer_list<std::pair<std::string_view, SettingValue>> values) {
  Settings trial;  // throws for an invalid key or value
  for (const auto& [key, value] : values) trial.set(key, value);
  const std::lock_guard lock(process().mutex);
  for (const auto& [key, value] : values) process().chosen.insert_or_assign(std::string(key), value);
  process().in_force.reset();
  ++process().version;
}

void reset_settings(std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) (void)find_setting(key);
  const std::lock_guard lock(process().mutex);
  for (const std::string_view key : keys)
    if (const auto found = process().chosen.find(key); found != process().chosen.end()) process().chosen.erase(found);
  process().in_force.reset();
  ++process().version;
}

void reload_settings() noexcept {
  const std::lock_guard lock(process().mutex);
  process().origin.reset();
  process().in_force.reset();
  ++process().version;
}

std::uint64_t detail::settings_version() noexcept { return process().version; }

}  // namespace cox
