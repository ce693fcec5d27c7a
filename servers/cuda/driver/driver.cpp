#include <coxswain/servers/cuda/driver/driver.hpp>

#include <coxswain/runtime/base/shared_library.hpp>
#include <coxswain/runtime/config/process_settings.hpp>
#include <coxswain/servers/cuda/driver/cuda_error.hpp>

#include <atomic>
#include <cstdlib>
#include <string>
#include <vector>

namespace cox::detail {
namespace {

constexpr int oldest_driver = 12040;

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::vector<std::string> driver_files() {
  const std::string given = settings().get<std::string>("cuda.driver");
  if (!given.empty()) return {given};
  return {"libcuda.so.1"};
}

/// Null if the driver does not have the function.
void* look_up(const Driver& driver, const char* function, int signature) {
  void* found = nullptr;
  CUdriverProcAddressQueryResult status{};
  const CUresult result = driver.get_proc_address(function, &found, signature, CU_GET_PROC_ADDRESS_DEFAULT, &status);
  return result == CUDA_SUCCESS ? found : nullptr;
}

/// Fills in `driver`. Returns an error text; empty if all is well.
std::string load(const SharedLibrary& library, Driver& driver) {
  driver.get_proc_address = reinterpret_cast<PFN_cuGetProcAddress_v12000>(library.find("cuGetProcAddress_v2"));
  if (driver.get_proc_address == nullptr) return library.file() + " is older than CUDA 12.0";
  std::string missing;
  const auto find = [&](const char* name, int version) {
    void* const found = look_up(driver, name, version);
    if (found == nullptr && missing.empty()) missing = name;
    return found;
  };
#define COX_CUDA_ENTRY(member, function, version) \
  driver.member = reinterpret_cast<PFN_##function##_v##version>(find(#function, version));
#include <coxswain/servers/cuda/driver/driver_entries.inc>
#undef COX_CUDA_ENTRY
  if (driver.driver_version != nullptr) driver.driver_version(&driver.version);
  if (driver.version < oldest_driver)
    return "the CUDA driver is of version " + version_text(driver.version) + "; at least " +
           version_text(oldest_driver) + " is needed";
  if (!missing.empty()) return library.file() + " has no " + missing;
  const CUresult result = driver.init(0);
  if (result == CUDA_SUCCESS) return {};
  const char* name = nullptr;
  driver.error_name(result, &name);
  return std::string("the CUDA driver cannot be initialized: cuInit: ") + (name != nullptr ? name : "unknown error");
}

constinit std::atomic<bool> ending{false};

FoundDriver open_driver() {
  const SharedLibrary library = SharedLibrary::open(driver_files());
  if (!library) return {nullptr, "no CUDA driver was found: " + library.error()};
  static Driver found;
  const std::string wrong = load(library, found);
  if (!wrong.empty()) return {nullptr, wrong};
  // Runs before the exit handlers of the driver, which were registered earlier.
  std::atexit([] { ending.store(true, std::memory_order_relaxed); });
  return {&found, {}};
}

}  // namespace

const FoundDriver& find_driver() {
  // Never destroyed: usable while static objects are destroyed.
  static const FoundDriver& found = *new FoundDriver(open_driver());
  return found;
}

void* Driver::find(const char* function, int signature) const {
  if (void* const found = cox::detail::look_up(*this, function, signature)) return found;
  throw CudaError(CudaError::Kind::Unsupported, 0, std::string("the CUDA driver has no function ") + function);
}

bool process_is_ending() noexcept { return ending.load(std::memory_order_relaxed); }

const Driver& driver() {
  const FoundDriver& found = find_driver();
  if (found.driver == nullptr) throw CudaError(CudaError::Kind::Unsupported, 0, found.error);
  return *found.driver;
}

}  // namespace cox::detail
