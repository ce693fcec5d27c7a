// The CUDA kernels, run on the CPU, against the host kernels, for both types of activations.

#include <emulated_backend.hpp>
#include <kernel_cases.hpp>
#include <require.hpp>

#include <coxswain/device_handle/base/shutdown.hpp>

#include <cstdio>
#include <set>

int main() {
  const cox::HostClient client = cox::HostClient::load({cox::host_device_type, 0});
  const train::Device<train::HostBackend> host(client);
  std::set<train::KernelId> checked;
  train::for_each_kernel_case(false, [&](const train::KernelCase& one) { checked.insert(one.id); });
  for (const train::KernelSource& source : train::kernel_sources())
    require(source.cuda.source == nullptr || checked.contains(source.id) || source.id == train::KernelId::Fault ||
                source.id == train::KernelId::GpuFault,
            source.name);
  std::size_t count = 0;
  for (const train::Precision precision : {train::Precision::Float32, train::Precision::Bfloat16})
    count += train::check_kernels(train::Device<train::EmulatedBackend>(client, precision), host, false);
  std::printf("%zu launches agree\n", count);
  cox::shutdown_all();
  return 0;
}
