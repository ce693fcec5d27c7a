#pragma once

#include <coxswain/runtime/config/process_settings.hpp>

#include <initializer_list>
#include <string_view>
#include <utility>
#include <vector>

namespace cox::test {

/// Values of settings for one scope, also if the test fails in it. The keys must outlive it.
class SettingsScope {
 public:
  explicit SettingsScope(std::initializer_list<std::pair<std::string_view, SettingValue>> values) {
    for (const auto& value : values) keys_.push_back(value.first);
    set_settings(values);
  }
  SettingsScope(const SettingsScope&) = delete;
  SettingsScope& operator=(const SettingsScope&) = delete;
  ~SettingsScope() {
    for (const std::string_view key : keys_) reset_settings({key});
  }

 private:
  std::vector<std::string_view> keys_;
};

}  // namespace cox::test
