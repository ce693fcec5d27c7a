// The helper thread of a CUDA device, over a stand-in for the driver.
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/servers/cuda/event/cuda_event.hpp>
#include <coxswain/servers/cuda/event/cuda_poller.hpp>
#include <coxswain/tests/servers/cuda_without_gpu/fake_gpus.hpp>
#include <coxswain/tests/support/refused_threads.hpp>

#include <cstdint>
#include <future>
#include <memory>
#include <system_error>
#include <thread>
#include <vector>

using namespace cox;
using namespace cox::test;

TEST_CASE("A function that the poller refused, since it had no thread, is never called") {
  FakeGpus gpus;
  {
    const CudaClient client = gpus.client();
    const auto context = detail::CudaContext::find(0);
    const detail::CurrentContext current(*context);
    const auto poller = std::make_shared<detail::CudaPoller>("test-poll");
    const auto events = std::make_shared<detail::CudaEvents>(context, poller, detail::CudaEvents::Timing::Off);
    const Handle memory = client.create(Bytes::copy_of(std::vector<std::uint32_t>{7}));
    const auto resource = client.get_resource(memory);
    const auto event = events->record(static_cast<CUstream>(resource.resource.stream));
    bool seccomp = false;
    bool refused = false;
    bool called = false;
    std::jthread([&] {
      seccomp = refuse_threads(RefusedThreads::OfThisThread);
      if (!seccomp) return;
      try {
        poller->add(event, [&] { called = true; });
      } catch (const std::system_error&) {
        refused = true;
      }
    }).join();
    if (!seccomp) WARN("skipped: seccomp is not there, nothing to refuse threads with");
    CHECK(refused == seccomp);
    std::promise<void> second;
    poller->add(event, [&] { second.set_value(); });
    second.get_future().wait();
    poller->stop();
    CHECK_FALSE(called);
  }
  CHECK(gpus.undestroyed_objects().empty());
}
