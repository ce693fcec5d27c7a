// Each allocation of host memory by a device thread fails once: waiting callers get an error, and the device goes on.
#include <coxswain/tests/servers/cuda_without_gpu/fake_gpus.hpp>
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/failing_allocation.hpp>

#include <coxswain/device_handle/base/shutdown.hpp>
#include <coxswain/runtime/bytes/bytes.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <utility>
#include <vector>

using namespace cox;
using namespace cox::test;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t reduced = 256;                       // bytes
constexpr std::size_t by_threads = std::size_t{6} << 20U;  // bytes: read by the copy threads

struct Two {
  CudaClient first = FakeGpus::client(0);
  CudaClient second = FakeGpus::client(1);
  CommunicationId both{std::vector<DeviceId>{FakeGpus::device(0), FakeGpus::device(1)}};
  Handle of_first = first.create(Bytes::zeroed(by_threads));
  Handle of_second = second.create(Bytes::zeroed(by_threads));
  Handle results = first.empty(by_threads);

  void reduce(CudaClient& client, const Handle& memory) const {
    const Handle window = memory.offset_end(by_threads - reduced);
    client.all_reduce(window, window, ElementType::U32, both);
    client.flush();
  }
};

void on_first(const std::function<void()>& function) {
  DeviceHandle<CudaServer>::get(FakeGpus::device(0)).submit_blocking([&](CudaServer&) { function(); });
}

/// Whether it has completed in time, with a result or an error.
template <class F>
bool completes(F&& future) {
  if (!future.wait_for(60s)) return false;
  try {
    static_cast<void>(future.get());
  } catch (const std::exception&) {
  }
  return true;
}

const std::vector<std::pair<std::string, std::function<void(Two&)>>> scenarios{
    {"a sync beside a collective",
     [](Two& two) {
       two.reduce(two.first, two.of_first);
       auto synced = two.first.sync();
       two.reduce(two.second, two.of_second);
       CHECK(completes(std::move(synced)));
     }},
    {"a large read", [](Two& two) { CHECK(completes(two.first.read_async(std::vector<Handle>{two.of_first}))); }},
    {"a large read on a device with ranks",
     [](Two& two) {
       two.reduce(two.first, two.of_first);
       auto read = two.first.read_async(std::vector<Handle>{two.of_first});
       two.reduce(two.second, two.of_second);
       CHECK(completes(std::move(read)));
     }},
    {"a large write",
     [](Two& two) {
       two.first.write(two.of_first, Bytes::zeroed(by_threads));
       CHECK(completes(two.first.sync()));
     }},
    {"a copy to the other device",
     [](Two& two) {
       const Handle copy = two.first.to_client(two.of_first, two.second, ElementType::U32);
       CHECK(completes(two.second.sync()));
     }},
    {"a profile",
     [](Two& two) {
       try {
         auto duration = two.first.profile([&] { FakeGpus::append(two.first, two.results, 1); });
         CHECK(completes(std::move(duration)));
       } catch (const std::exception&) {
       }
     }},
};

}  // namespace

TEST_CASE("Without memory at any allocation of the device thread there is an error, and the device goes on") {
  for (const auto& [name, scenario] : scenarios) {
    INFO(name);
    int failures = 0;
    for (;; ++failures) {
      INFO("after " << failures << " allocations");
      FakeGpus gpus;
      Two two;
      two.reduce(two.first, two.of_first);
      two.reduce(two.second, two.of_second);
      two.first.sync().get();
      two.second.sync().get();
      on_first([&] {
        stand_ins_have_memory = true;
        allocations_until_failure = failures;
      });
      try {
        scenario(two);
      } catch (const std::exception&) {
      }
      bool has_failed = false;
      on_first([&] { has_failed = std::exchange(allocations_until_failure, -1) < 0; });
      for (int i = 0; i < 2; ++i) static_cast<void>(completes(two.first.sync()));  // its failures, and later ones
      const Handle fresh = two.first.create(Bytes::from_vector(std::vector<std::uint32_t>{1, 2, 3}));
      CHECK(two.first.read_one(fresh).to_vector<std::uint32_t>() == std::vector<std::uint32_t>{1, 2, 3});
      if (!has_failed) break;
    }
    CHECK(failures > 3);
  }
}
