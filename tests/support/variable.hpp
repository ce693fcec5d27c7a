#pragma once

#include <coxswain/runtime/config/process_settings.hpp>

#include <cstdlib>
#include <string>
#include <utility>

namespace cox::test {

/// An environment variable for one scope, in which the settings of the process see it. The tests of a program run one
/// after the other.
class Variable {
 public:
  Variable(std::string name, const std::string& value) : name_(std::move(name)) {
    ::setenv(name_.c_str(), value.c_str(), 1);
    reload_settings();
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  ~Variable() {
    ::unsetenv(name_.c_str());
    reload_settings();
  }

 private:
  std::string name_;
};

}  // namespace cox::test
