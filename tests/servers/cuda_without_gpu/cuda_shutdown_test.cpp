// Shutdown of CUDA devices over a stand-in for the driver: what others still do with their memory.
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/device_handle/base/shutdown.hpp>
#include <coxswain/tests/servers/cuda_without_gpu/fake_gpus.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <future>
#include <mutex>
#include <optional>
#include <vector>

using namespace cox;
using namespace cox::test;
using namespace std::chrono_literals;

namespace {

constexpr ElementType u32 = ElementType::U32;

std::vector<std::uint32_t> numbers(std::uint32_t value) { return std::vector<std::uint32_t>(64, value); }
Bytes bytes(std::uint32_t value) { return Bytes::copy_of(numbers(value)); }

/// Both device threads have done what follows from what was submitted so far.
void pass_both() {
  for (int i = 0; i < 5; ++i) {
    FakeGpus::pass(0);
    FakeGpus::pass(1);
  }
}

}  // namespace

// The copy is queued behind a kernel, on a stream of the sender; the receiver has nothing of its own in flight.
TEST_CASE("L13: the shutdown of a receiver waits until a copy to its memory has completed") {
  FakeGpus gpus;
  const CudaClient sender = gpus.client(0);
  const CudaClient receiver = gpus.client(1);
  const Handle sent = sender.create(bytes(7));
  const Handle received = receiver.create(bytes(0));
  sender.sync().get();
  receiver.sync().get();
  gpus.hold(sender, sent);
  sender.send(sent, u32, gpus.device(1));
  receiver.receive(received, u32, gpus.device(0));
  pass_both();
  auto outcome = std::async(std::launch::async, [] { return shutdown(FakeGpus::device(1), 60s); });
  CHECK(outcome.wait_for(300ms) == std::future_status::timeout);
  gpus.release();
  CHECK(outcome.get() == ShutdownOutcome::Drained);
  sender.sync().get();
  shutdown(gpus.device(0), 60s);
  const std::lock_guard lock(gpus.fake.mutex);
  CHECK(gpus.fake.misuse.empty());
}

// The copy has been queued when the record of the event behind it fails. The receiver's next work on the memory is
// queued behind the copy all the same.
TEST_CASE("L11: whichever call of a transfer fails, what is queued after it runs after its copy") {
  for (int calls = 0;; ++calls) {
    FakeGpus gpus;
    INFO("call " << calls);
    const CudaClient sender = gpus.client(0);
    const CudaClient receiver = gpus.client(1);
    const Handle sent = sender.create(bytes(7));
    const Handle received = receiver.create(bytes(0));
    sender.sync().get();
    receiver.sync().get();
    gpus.hold(sender, sent);
    gpus.fail_after(calls);
    Attempts attempt;
    attempt([&] { sender.send(sent, u32, gpus.device(1)); });
    attempt([&] { receiver.receive(received, u32, gpus.device(0)); });
    pass_both();
    const char* const failed = gpus.stop_failing();
    INFO((failed != nullptr ? failed : "nothing") << " has failed");
    receiver.write(received, bytes(9));
    pass_both();
    gpus.release();
    attempt([&] { sender.sync().get(); });
    attempt([&] { receiver.sync().get(); });
    shutdown(gpus.device(0), 60s);  // no copy of it is in flight any more
    REQUIRE(receiver.read_one(received).to_vector<std::uint32_t>() == numbers(9));
    if (failed != nullptr) continue;
    CHECK_FALSE(attempt.failed());
    CHECK(calls > 2);
    break;
  }
}
