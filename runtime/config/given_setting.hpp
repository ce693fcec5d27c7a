#pragma once

#include <coxswain/runtime/config/setting.hpp>
#include <coxswain/runtime/config/setting_source.hpp>
#include <coxswain/runtime/config/setting_value.hpp>

namespace cox::detail {

/// A setting that a file or the environment gives.
struct GivenSetting {
  const Setting* setting;
  SettingValue value;
  SettingSource source;
};

}  // namespace cox::detail
