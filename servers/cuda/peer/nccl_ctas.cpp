#include <coxswain/servers/cuda/peer/nccl_ctas.hpp>

#include <coxswain/runtime/communication/world_process.hpp>
#include <coxswain/runtime/config/process_settings.hpp>
#include <coxswain/servers/cuda/device/cuda_devices.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>

namespace cox::detail {
namespace {

bool is_on_nvlink(DeviceId device) {
  return std::ranges::any_of(enumerate_cuda_devices(), [device](DeviceId peer) {
    return peer != device && describe_cuda_peer(device, peer).atomics;
  });
}

// They limit the CTAs, and would not if the configuration asked for more.
bool has_nccl_variable() {
  return std::ranges::any_of(std::array{"NCCL_MIN_CTAS", "NCCL_MAX_CTAS", "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS",
                                        "NCCL_MIN_NRINGS", "NCCL_MAX_NRINGS"},
                             [](const char* name) { return std::getenv(name) != nullptr; });
}

}  // namespace

// Two H200s, NCCL 2.28.9, which chooses 24: all_reduces of 32 MiB to 512 MiB take 1.03 to 1.09 times as long as with
// 32, and the step of a training with overlapped gradients takes as long (docs/training.md).
int measured_nccl_ctas(const NcclCtasFacts& facts) noexcept {
  return facts.ranks == 2 && facts.compute_capability == 90 && facts.nvlink ? 32 : 0;
}

int nccl_ctas(const CommunicationId& devices, const std::vector<int>& ordinals) {
  if (const auto ctas = settings().get<std::uint64_t>("collectives.nccl_ctas"); ctas != 0)
    return static_cast<int>(ctas);
  if (!are_on_one_host(devices.devices()) || has_nccl_variable()) return 0;
  const DeviceId own{cuda_device_type, static_cast<std::uint16_t>(ordinals.front())};
  const CudaDeviceFacts facts = describe_cuda_device(own);
  const bool nvlink =
      ordinals.size() == 2
          ? describe_cuda_peer(own, {cuda_device_type, static_cast<std::uint16_t>(ordinals.back())}).atomics
          : is_on_nvlink(own);
  return measured_nccl_ctas({.ranks = devices.world_size(),
                             .compute_capability = 10 * facts.compute_major + facts.compute_minor,
                             .nvlink = nvlink});
}

}  // namespace cox::detail
