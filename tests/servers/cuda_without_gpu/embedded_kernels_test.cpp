// The kernels that were compiled with the library: which device they are for, and that nothing is compiled where they
// are used.
#include <coxswain/tests/servers/cuda_without_gpu/fake_gpus.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/base/fnv1a.hpp>
#include <coxswain/runtime/communication/communication_id.hpp>
#include <coxswain/servers/cuda/compile/kernel_image.hpp>
#include <coxswain/servers/cuda/driver/driver.hpp>
#include <coxswain/servers/cuda/peer/embedded_kernels.hpp>
#include <coxswain/servers/cuda/peer/peer_kernels.hpp>

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

using namespace cox;
using namespace cox::detail;
using namespace cox::test;

namespace {

/// Compilations of the stand-in so far; 0 if the process has not opened it.
int compilations() {
  void* const nvrtc = dlopen(COX_FAKE_NVRTC, RTLD_NOW | RTLD_NOLOAD);
  if (nvrtc == nullptr) return 0;
  const auto count = reinterpret_cast<int (*)()>(dlsym(nvrtc, "cox_fake_nvrtc_compilations"));
  const int compiled = count();
  dlclose(nvrtc);
  return compiled;
}

/// All ranks reduce two elements of the type, on devices from 0 on. Returns how much was compiled for it.
int compilations_of_all_reduce(ElementType type, std::uint16_t ranks) {
  std::vector<DeviceId> devices;
  for (std::uint16_t rank = 0; rank < ranks; ++rank) devices.push_back(FakeGpus::device(rank));
  const CommunicationId all(devices);
  const int before = compilations();
  std::vector<CudaClient> clients;
  std::vector<Handle> data;
  for (std::uint16_t rank = 0; rank < ranks; ++rank) {
    clients.push_back(FakeGpus::client(rank));
    data.push_back(clients.back().create(Bytes::copy_of(std::vector<std::byte>(2 * element_size(type)))));
  }
  for (std::size_t rank = 0; rank < ranks; ++rank) clients[rank].all_reduce(data[rank], data[rank], type, all);
  for (const CudaClient& client : clients) client.sync().get();
  return compilations() - before;
}

}  // namespace

TEST_CASE("Embedded kernels run on devices that have machine code, or are newer than the PTX") {
  const std::array fatbin{std::byte{1}};
  const std::array images{EmbeddedKernels::Image{fnv1a("a source"), fatbin}};
  const std::array cubins{80, 90, 100};
  const EmbeddedKernels kernels{.toolkit = 13010, .cubins = cubins, .ptx = 80, .images = images};
  CHECK_FALSE(kernels.run_on({7, 5}, 13010));
  for (const ComputeCapability device : {ComputeCapability{8, 0}, {8, 6}, {8, 9}, {9, 0}, {10, 0}, {10, 3}}) {
    CAPTURE(device.major, device.minor);
    CHECK(kernels.run_on(device, 13010));
    CHECK(kernels.run_on(device, 14000));
    CHECK(kernels.run_on(device, 13000));        // machine code of the same major version
    CHECK_FALSE(kernels.run_on(device, 12090));  // an older driver does not load it
  }
  for (const ComputeCapability device : {ComputeCapability{11, 0}, {12, 0}}) {
    CAPTURE(device.major, device.minor);
    CHECK(kernels.run_on(device, 13010));
    CHECK_FALSE(kernels.run_on(device, 13000));  // it may not know the PTX
  }
  CHECK_FALSE(EmbeddedKernels{.toolkit = 13010, .cubins = cubins, .ptx = 80}.run_on({9, 0}, 13010));
  const std::array only_later{90};
  CHECK_FALSE(EmbeddedKernels{.toolkit = 13010, .cubins = only_later, .images = images}.run_on({8, 0}, 13010));
}

TEST_CASE("An embedded image is found by the source that it was compiled from, and by no other one") {
  const std::array fatbin{std::byte{1}, std::byte{2}};
  const std::array images{EmbeddedKernels::Image{fnv1a("another"), {}},
                          EmbeddedKernels::Image{fnv1a("a source"), fatbin}};
  const EmbeddedKernels kernels{.images = images};
  CHECK(kernels.find("a source").data() == fatbin.data());
  CHECK(kernels.find("a source").size() == 2);
  CHECK(kernels.find("A source").empty());
  CHECK(EmbeddedKernels().find("a source").empty());
}

TEST_CASE("What is embedded was compiled from the sources of this library") {
  const EmbeddedKernels& embedded = EmbeddedKernels::of_peers();
  if (embedded.images.empty()) {
    WARN("skipped: needs a library that was built with nvcc");
    return;
  }
  CHECK(embedded.toolkit >= 12000);
  CHECK(std::ranges::is_sorted(embedded.cubins));
  CHECK(embedded.ptx == embedded.cubins.front());
  std::vector<PeerKernelCode> codes{{}};
  for (const ElementType type : {ElementType::F32, ElementType::F16, ElementType::BF16})
    for (const ReduceOperation operation : {ReduceOperation::Sum, ReduceOperation::Mean})
      codes.push_back({true, type, operation});
  std::size_t found = 0;
  for (const PeerKernelCode& code : codes)
    for (const std::size_t ranks : {2U, 4U, 8U}) {
      const auto image = embedded.find(peer_kernels_source(code, ranks));
      CHECK(KernelImage::inspect(image).kind == KernelImage::Kind::Fatbin);
      ++found;
    }
  CHECK(found == embedded.images.size());
}

TEST_CASE("A first small all_reduce whose kernels are embedded compiles nothing, another one compiles for its type") {
  const FakeGpus gpus;
  const bool is_embedded = EmbeddedKernels::of_peers().run_on({9, 0}, driver().version);  // of the stand-in devices
  if (!is_embedded) WARN("the library has no kernels for the stand-in driver");
  CHECK(compilations_of_all_reduce(ElementType::F32, 2) == (is_embedded ? 0 : 1));
  CHECK(compilations_of_all_reduce(ElementType::BF16, 4) == (is_embedded ? 0 : 1));
  CHECK(compilations_of_all_reduce(ElementType::F32, 3) == 1);
  CHECK(compilations_of_all_reduce(ElementType::I32, 2) == 1);
}

TEST_CASE("Where the driver rejects an embedded image, its kernels are compiled") {
  FakeGpus gpus;
  const auto reject = [&](bool rejects) {
    const std::lock_guard lock(gpus.fake.mutex);
    gpus.fake.rejects_fatbins = rejects;
  };
  reject(true);
  const int compiled = compilations_of_all_reduce(ElementType::F16, 4);  // of no other test: images stay loaded
  reject(false);
  CHECK(compiled == 1);
}
