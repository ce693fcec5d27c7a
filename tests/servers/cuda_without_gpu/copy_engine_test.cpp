// The copy threads over a stand-in for the driver.
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/servers/cuda/copy/copy_engine.hpp>
#include <coxswain/servers/cuda/event/cuda_poller.hpp>
#include <coxswain/tests/servers/cuda_without_gpu/fake_gpus.hpp>
#include <coxswain/tests/support/failing_allocation.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

using namespace cox;
using namespace cox::test;
using cox::detail::CopyTask;

namespace {

/// 64 bytes of device memory, and what an engine needs.
struct Bench {
  explicit Bench(FakeGpus& gpus) : client(gpus.client()) { client.sync().get(); }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;
  ~Bench() { poller->stop(); }

  [[nodiscard]] CopyTask task(CopyTask::Direction direction, std::uint8_t byte) const {
    CopyTask made;
    made.direction = direction;
    made.parts.push_back({there.resource.address, CopyPlan{.rows = 1, .row_bytes = 64, .pitch = 64},
                          Bytes::copy_of(std::vector<std::uint8_t>(64, byte))});
    return made;
  }

  CudaClient client;
  Handle memory = client.create(Bytes::zeroed(64));
  ManagedResource<CudaResource> there = client.get_resource(memory);
  std::shared_ptr<detail::CudaContext> context = detail::CudaContext::find(0);
  detail::CurrentContext current{*context};
  std::shared_ptr<detail::CudaPoller> poller = std::make_shared<detail::CudaPoller>("test-poll");
  std::shared_ptr<detail::CudaEvents> events =
      std::make_shared<detail::CudaEvents>(context, poller, detail::CudaEvents::Timing::Off);
};

}  // namespace

TEST_CASE("A copy for which there is no memory is refused and unchanged, else it is done") {
  FakeGpus gpus;
  {
    Bench t(gpus);
    detail::CopyEngine engine("test-copy", t.events, {.threads = 1});
    constexpr int copies = 200;  // the queue of the engine grows now and then
    std::atomic<int> failed{0};
    std::atomic<int> completed{0};
    int refused = 0;
    for (int copy = 0; copy < copies; ++copy) {
      CopyTask task = t.task(CopyTask::Direction::ToDevice, static_cast<std::uint8_t>(copy));
      task.on_completed = [&](CopyTask&, const std::exception_ptr& error, const std::shared_ptr<detail::CudaEvent>&) {
        if (error != nullptr) ++failed;
        ++completed;
      };
      for (int left = 0;; ++left) {
        bool added = false;
        allocations_until_failure = left;
        try {
          engine.add(std::move(task));
          added = true;
        } catch (const std::bad_alloc&) {
        }
        allocations_until_failure = -1;
        if (added) break;
        ++refused;
        REQUIRE(task.parts.size() == 1);
        REQUIRE(task.on_completed);
      }
    }
    while (completed != copies) std::this_thread::yield();
    engine.stop();
    CHECK(failed == 0);
    CHECK(refused >= copies);
    CHECK(t.client.read_one(t.memory).to_vector<std::uint8_t>()[63] == copies - 1);
  }
  CHECK(gpus.undestroyed_objects().empty());
}

TEST_CASE("L13: an engine that is destroyed ends its threads, also when a copy is added again meanwhile") {
  FakeGpus gpus;
  {
    Bench t(gpus);
    std::atomic<int> completed{0};
    constexpr int rounds = 200;
    for (int round = 0; round < rounds; ++round) {
      std::atomic<bool> entered{false};
      std::atomic<bool> goes_on{false};
      std::optional<detail::CopyEngine> engine(std::in_place, "test-copy", t.events,
                                               detail::CopyEngineOptions{.threads = 1});
      CopyTask task = t.task(CopyTask::Direction::ToHost, 0);
      task.make_direct = [&](std::vector<CopyTask::Part>&) {  // there is no page-locked memory for it
        entered = true;
        while (!goes_on) std::this_thread::yield();
        return false;
      };
      task.on_completed = [&](CopyTask&, const std::exception_ptr& error, const std::shared_ptr<detail::CudaEvent>&) {
        if (error == nullptr) ++completed;
      };
      engine->add(std::move(task));
      while (!entered) std::this_thread::yield();
      std::thread closer([&] { engine.reset(); });
      for (int i = 0; i < round; ++i) std::this_thread::yield();
      goes_on = true;
      closer.join();
    }
    CHECK(completed == rounds);
  }
  CHECK(gpus.undestroyed_objects().empty());
}
