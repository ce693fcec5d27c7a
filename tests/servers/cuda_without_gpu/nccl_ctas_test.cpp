#include <coxswain/tests/servers/cuda_without_gpu/fake_gpus.hpp>
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/settings_scope.hpp>
#include <coxswain/tests/support/variable.hpp>

#include <coxswain/runtime/communication/communication_id.hpp>
#include <coxswain/runtime/communication/world_process.hpp>
#include <coxswain/servers/cuda/peer/nccl_ctas.hpp>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

using namespace cox;
using namespace cox::test;
using detail::measured_nccl_ctas;
using detail::nccl_ctas;

namespace {

const std::vector<DeviceId>& two_gpus() {
  static const std::vector<DeviceId> devices{FakeGpus::device(0), FakeGpus::device(1)};
  return devices;
}

/// This process, with cuda:0 of a world of two processes with a GPU each.
class InWorld {
 public:
  explicit InWorld(std::vector<std::string> hosts) {
    detail::set_hosts(std::move(hosts));
    detail::set_own_process(1);
  }
  InWorld(const InWorld&) = delete;
  InWorld& operator=(const InWorld&) = delete;
  ~InWorld() {
    detail::set_own_process(0);
    detail::set_hosts({});
  }

  [[nodiscard]] static int ctas() {
    return nccl_ctas(CommunicationId({{cuda_device_type, 0, 1}, {cuda_device_type, 0, 2}}), {0});
  }
};

}  // namespace

TEST_CASE("More CTAs than NCCL chooses are taken only where that was measured") {
  CHECK(measured_nccl_ctas({.ranks = 2, .compute_capability = 90, .nvlink = true}) == 32);
  CHECK(measured_nccl_ctas({.ranks = 2, .compute_capability = 90, .nvlink = false}) == 0);
  CHECK(measured_nccl_ctas({.ranks = 2, .compute_capability = 80, .nvlink = true}) == 0);
  CHECK(measured_nccl_ctas({.ranks = 4, .compute_capability = 90, .nvlink = true}) == 0);
}

TEST_CASE("The CTAs of two GPUs depend on NVLink and on the setting") {
  FakeGpus gpus;
  CHECK(nccl_ctas(CommunicationId(two_gpus()), {0, 1}) == 0);
  gpus.fake.has_nvlink = true;
  CHECK(nccl_ctas(CommunicationId(two_gpus()), {0, 1}) == 32);
  {
    const Variable limit("NCCL_MAX_NCHANNELS", "8");
    CHECK(nccl_ctas(CommunicationId(two_gpus()), {0, 1}) == 0);
  }
  gpus.fake.has_peer_access = false;
  CHECK(nccl_ctas(CommunicationId(two_gpus()), {0, 1}) == 0);
  const SettingsScope settings{{"collectives.nccl_ctas", std::uint64_t{12}}};
  CHECK(nccl_ctas(CommunicationId(two_gpus()), {0, 1}) == 12);
}

TEST_CASE("The CTAs of GPUs of several processes depend on their hosts") {
  FakeGpus gpus;
  gpus.fake.has_nvlink = true;
  {
    const InWorld world({"node1", "node1"});
    CHECK(InWorld::ctas() == 32);
  }
  {
    const InWorld world({"node1", "node2"});
    CHECK(InWorld::ctas() == 0);
  }
}
