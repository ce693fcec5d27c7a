#include <coxswain/tests/servers/cuda_without_gpu/fake_gpus.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/device_handle/base/call_error.hpp>
#include <coxswain/device_handle/base/find_cause.hpp>
#include <coxswain/runtime/error/server_error.hpp>
#include <coxswain/servers/cuda/driver/cuda_error.hpp>

#include <cstddef>
#include <exception>
#include <string>
#include <vector>

using namespace cox;
using namespace cox::test;

TEST_CASE("L12: a profile that cannot be ended takes no later failures, whichever call of the driver fails") {
  for (int calls = 0;; ++calls) {
    INFO("after " << calls << " calls");
    FakeGpus gpus;
    const CudaClient client = FakeGpus::client();
    const Handle buffer = client.empty(1024);
    client.sync().get();
    bool has_ended = true;
    try {
      client.profile([&] { gpus.fail_after(calls); }).get();
    } catch (const std::exception&) {
      has_ended = false;
    }
    const bool has_failed = gpus.stop_failing() != nullptr;
    try {
      client.sync().get();  // what the profile's failure has left
    } catch (const ServerError&) {
    }
    gpus.fail_after(0);
    FakeGpus::append(client, buffer, 1);
    CHECK_THROWS_AS(
        [&] {
          client.flush();
          client.flush();  // all that has failed until now
        }(),
        ServerError);
    gpus.stop_failing();
    CHECK(has_ended != has_failed);
    if (!has_failed) break;
  }
}
