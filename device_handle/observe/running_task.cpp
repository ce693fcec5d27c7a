#include <coxswain/device_handle/observe/running_task.hpp>

#include <cxxabi.h>

#include <cstdlib>
#include <memory>

namespace cox {

std::string RunningTask::to_string() const {
  if (const char* const label = label_.load(std::memory_order_acquire)) {  // pairs with name()
    return std::string(label) + " (" + file_.load(std::memory_order_relaxed) + ":" +
           std::to_string(line_.load(std::memory_order_relaxed)) + ")";
  }
  const std::type_info* const type = type_.load(std::memory_order_relaxed);
  if (type == nullptr) return "no task";
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(abi::__cxa_demangle(type->name(), nullptr, nullptr, &status),
                                                         &std::free);
  return status == 0 ? name.get() : type->name();
}

}  // namespace cox
