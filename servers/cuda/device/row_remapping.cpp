#include <coxswain/servers/cuda/device/row_remapping.hpp>

#include <coxswain/runtime/base/shared_library.hpp>

namespace cox::detail {
namespace {

// The functions of NVML as its documentation declares them. Its header is not part of every CUDA toolkit.
using NvmlDevice = void*;
using InitWithFlags = int (*)(unsigned flags);
using Shutdown = int (*)();
using HandleByBusId = int (*)(const char* bus_id, NvmlDevice* device);
using RemappedRows = int (*)(NvmlDevice device, unsigned* correctable, unsigned* uncorrectable, unsigned* pending,
                             unsigned* failed);
constexpr unsigned no_attach = 2;  // NVML_INIT_FLAG_NO_ATTACH: do not initialise all GPUs

template <class Function>
Function find(const SharedLibrary& library, const char* name) {
  return reinterpret_cast<Function>(library.find(name));
}

}  // namespace

std::optional<bool> rows_wait_for_remapping(const std::string& bus_id, const std::string& library) {
  const SharedLibrary nvml = SharedLibrary::open({library});
  if (!nvml) return std::nullopt;
  const auto init = find<InitWithFlags>(nvml, "nvmlInitWithFlags");
  const auto shutdown = find<Shutdown>(nvml, "nvmlShutdown");
  const auto handle_of = find<HandleByBusId>(nvml, "nvmlDeviceGetHandleByPciBusId_v2");
  const auto remapped_rows = find<RemappedRows>(nvml, "nvmlDeviceGetRemappedRows");
  if (init == nullptr || shutdown == nullptr || handle_of == nullptr || remapped_rows == nullptr) return std::nullopt;
  if (init(no_attach) != 0) return std::nullopt;
  NvmlDevice device = nullptr;
  unsigned correctable = 0;
  unsigned uncorrectable = 0;
  unsigned pending = 0;
  unsigned failed = 0;
  const bool is_known = handle_of(bus_id.c_str(), &device) == 0 &&
                        remapped_rows(device, &correctable, &uncorrectable, &pending, &failed) == 0;
  shutdown();
  if (!is_known) return std::nullopt;
  return pending != 0;
}

}  // namespace cox::detail
