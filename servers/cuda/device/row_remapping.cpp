#include <coxswain/servers/cuda/device/row_remapping.hpp>

#include <coxswain/runtime/base/shared_library.hpp>
#include <coxswain/runtime/config/process_settings.hpp>
#include <coxswain/servers/cuda/driver/cuda_try.hpp>

#include <array>
#include <utility>

namespace cox::detail {
namespace {

// The functions of NVML as its documentation declares them. Its header is not part of every CUDA toolkit.
using Init = int (*)();
using Shutdown = int (*)();
using HandleByBusId = int (*)(const char* bus_id, void** device);
using RemappedRows = int (*)(void* device, unsigned* correctable, unsigned* uncorrectable, unsigned* pending,
                             unsigned* failed);

template <class Function>
Function find(const SharedLibrary& library, const char* name) {
  return reinterpret_cast<Function>(library.find(name));
}

}  // namespace

// The library, once it is needed.
struct RowRemapping::Nvml {
  std::string file;
  std::once_flag once;
  bool is_open = false;
  Shutdown shutdown = nullptr;
  HandleByBusId handle_of = nullptr;
  RemappedRows remapped_rows = nullptr;

  void open() {
    const SharedLibrary library = SharedLibrary::open({file});
    if (!library) return;
    const auto init = find<Init>(library, "nvmlInit_v2");  // initialises no GPU yet
    shutdown = find<Shutdown>(library, "nvmlShutdown");
    handle_of = find<HandleByBusId>(library, "nvmlDeviceGetHandleByPciBusId_v2");
    remapped_rows = find<RemappedRows>(library, "nvmlDeviceGetRemappedRows");
    is_open = init != nullptr && shutdown != nullptr && handle_of != nullptr && remapped_rows != nullptr && init() == 0;
  }
};

RowRemapping& RowRemapping::of_process() {
  // Never destroyed: its threads may run while static objects are destroyed.
  static RowRemapping& found = *new RowRemapping([] {
    const auto given = settings().get<std::string>("cuda.nvml");
    return given.empty() ? std::string("libnvidia-ml.so.1") : given;
  }());
  return found;
}

RowRemapping::RowRemapping(std::string library) : nvml_(std::make_unique<Nvml>()) { nvml_->file = std::move(library); }

RowRemapping::~RowRemapping() {
  opened_.clear();  // waits for their threads
  if (nvml_->is_open) nvml_->shutdown();
}

std::shared_future<RowRemapping::NvmlDevice> RowRemapping::open(const std::string& bus_id, std::launch how) {
  const std::lock_guard lock(mutex_);
  std::shared_future<NvmlDevice>& opened = opened_[bus_id];
  if (opened.valid()) return opened;
  opened = std::async(how, [nvml = nvml_.get(), bus_id] {
             std::call_once(nvml->once, [nvml] { nvml->open(); });
             NvmlDevice device = nullptr;
             if (!nvml->is_open || nvml->handle_of(bus_id.c_str(), &device) != 0) device = nullptr;
             return device;
           }).share();
  return opened;
}

void RowRemapping::prepare(const std::string& bus_id) noexcept {
  try {
    static_cast<void>(open(bus_id, std::launch::async));
  } catch (...) {  // no thread: is_pending() opens it
  }
}

std::optional<bool> RowRemapping::is_pending(const std::string& bus_id) {
  const NvmlDevice device = open(bus_id, std::launch::deferred).get();
  unsigned correctable = 0;
  unsigned uncorrectable = 0;
  unsigned pending = 0;
  unsigned failed = 0;
  if (device == nullptr || nvml_->remapped_rows(device, &correctable, &uncorrectable, &pending, &failed) != 0)
    return std::nullopt;
  return pending != 0;
}

std::string bus_id_of(int ordinal) {
  CUdevice device = 0;
  std::array<char, 32> text{};
  COX_CUDA_TRY(device_get(&device, ordinal));
  COX_CUDA_TRY(device_bus_id(text.data(), static_cast<int>(text.size()), device));
  return text.data();
}

}  // namespace cox::detail
