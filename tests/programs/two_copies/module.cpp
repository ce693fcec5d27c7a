// What two_copies.cpp opens at run time, as a Python module or a plugin is.

#include <coxswain/device_handle/handle/device_handle.hpp>

#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <exception>

namespace {

struct Service {
  explicit Service(cox::DeviceId) {}
};

}  // namespace

/// Runs a task on device 0:7. Returns the id of its thread; 0, and why in `why`, if that was refused.
extern "C" unsigned long run_task(char* why, std::size_t size) {
  try {
    auto handle = cox::DeviceHandle<Service>::get({.type = 0, .index = 7});
    return handle.submit_blocking([](Service&) { return static_cast<unsigned long>(gettid()); });
  } catch (const std::exception& error) {
    std::snprintf(why, size, "%s", error.what());
    return 0;
  }
}
