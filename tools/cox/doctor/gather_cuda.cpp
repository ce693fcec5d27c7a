#include <coxswain/tools/cox/doctor/gather.hpp>

#ifdef COX_HAS_CUDA
#include <coxswain/runtime/detail/library_search.hpp>
#include <coxswain/runtime/detail/shared_library.hpp>
#endif

namespace cox::tools {

#ifdef COX_HAS_CUDA
namespace {

NcclFacts find_nccl() {
  const detail::LibrarySearch search{.given = {}, .names = {"libnccl.so.2"}, .wheel_folders = {"nvidia/nccl/lib"}};
  const auto files = detail::library_candidates(search, detail::SearchRoots::of_process());
  detail::SharedLibrary library = detail::SharedLibrary::open(files);
  if (!library) return {.found = false, .version = 0, .file = {}, .why_not = "there is no libnccl.so.2 here"};
  const auto get_version = reinterpret_cast<int (*)(int*)>(library.find("ncclGetVersion"));
  NcclFacts facts{.found = true, .version = 0, .file = library.file(), .why_not = {}};
  if (get_version == nullptr || get_version(&facts.version) != 0)
    return {.found = false, .version = 0, .file = {}, .why_not = library.file() + " does not say its version"};
  return facts;
}

}  // namespace

void gather_cuda(Facts& facts) {
  facts.driver = describe_cuda_driver();
  facts.nvrtc = describe_nvrtc();
  facts.nccl = find_nccl();
  const std::vector<DeviceId> devices = enumerate_cuda_devices();
  for (const DeviceId device : devices) {
    facts.gpus.push_back(describe_cuda_device(device));
    std::vector<CudaPeerFacts>& row = facts.peers.emplace_back();
    for (const DeviceId peer : devices)
      row.push_back(peer == device ? CudaPeerFacts{} : describe_cuda_peer(device, peer));
  }
}
#else
void gather_cuda(Facts& facts) { facts.driver.why_not = "this build has no CUDA server"; }
#endif

}  // namespace cox::tools
