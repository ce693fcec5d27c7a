#pragma once

#include <coxswain/runtime/config/setting.hpp>
#include <coxswain/runtime/config/setting_source.hpp>
#include <coxswain/runtime/config/setting_value.hpp>

namespace cox::detail {

/// The value of a setting that a file or the environment contains.
struct GivenSetting {
  const Setting* setting;
  SettingValue value;
  SettingSource source;
};

}  // namespace cox::detail
