#include <coxswain/tests/stand_ins/cuda_driver.hpp>

#include <coxswain/device_handle/base/shutdown.hpp>
#include <coxswain/runtime/config/process_settings.hpp>
#include <coxswain/servers/cuda/driver/driver.hpp>

#include <dlfcn.h>

#include <mutex>
#include <string>

namespace cox::test {

FakeCuda* find_cuda_stand_in() {
  if (detail::find_driver().driver == nullptr) return nullptr;
  const std::string file = settings().get<std::string>("cuda.driver");
  void* const library = file.empty() ? nullptr : ::dlopen(file.c_str(), RTLD_NOW | RTLD_NOLOAD);
  void* const entry = library == nullptr ? nullptr : ::dlsym(library, "cox_fake_cuda");
  return entry == nullptr ? nullptr : reinterpret_cast<FakeCuda* (*)()>(entry)();
}

std::string undestroyed_objects(FakeCuda& fake) {
  shutdown_all();
  const std::lock_guard lock(fake.mutex);
  std::string found = fake.live == 0 ? "" : std::to_string(fake.live) + " not given back\n";
  for (const std::string& misuse : fake.misuse) found += misuse + "\n";
  return found;
}

}  // namespace cox::test
