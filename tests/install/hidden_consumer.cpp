// A consumer that is compiled with -fvisibility=hidden and -fvisibility-inlines-hidden against the shared library: what
// it and the library know of a thread, of the clock and of memory are the same objects.

#include <coxswain/device_handle/base/shutdown.hpp>
#include <coxswain/device_handle/base/stream_id.hpp>
#include <coxswain/device_handle/handle/device_handle.hpp>
#include <coxswain/device_handle/handle/inline_device_handle.hpp>
#include <coxswain/device_handle/observe/wait_graph.hpp>
#include <coxswain/device_handle/queue/platform.hpp>
#include <coxswain/device_handle/service/thread_context.hpp>
#include <coxswain/runtime/error/log.hpp>
#include <coxswain/runtime/trace/trace.hpp>
#include <coxswain/servers/host/server/host_server.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <thread>
#include <vector>

namespace {

int failures = 0;

void check(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  ++failures;
}

struct Service {
  explicit Service(cox::DeviceId) {}
};

// StreamId, the thread context and the wait graph: the library sets them, the consumer's inline functions read them.
void check_task() {
  const auto device = cox::DeviceHandle<Service>::get({.type = 0, .index = 0});
  const cox::StreamId stream = cox::StreamId::allocate();
  stream.executes([&] {
    device.submit_blocking([&](Service&) {
      check(cox::StreamId::current() == stream, "a task has the stream of its submitter (L9)");
      check(cox::ThreadContext::current() != nullptr, "a task has a thread context");
      check(cox::HeldNode::any_held(), "a task holds up its device (L10)");
    });
  });
  const auto nested = cox::InlineDeviceHandle<Service>::get({.type = 0, .index = 1});
  int ran = 0;
  nested.submit_blocking([&](Service&) {
    nested.submit([&](Service&) { ++ran; });
    check(ran == 0, "a task of an inline device is queued behind the running one");
    check(cox::HeldNode::any_held(), "a task holds up its inline device");
  });
  check(ran == 1, "the queued task has run when the running one has ended");
}

// The clock of the lanes: prepare_platform() in the library selects it, the consumer's pushes read it.
void check_clock() {
  check(cox::stamps_are_time() == (cox::nanoseconds_per_stamp() > 0), "pushes and device threads read one clock");
}

void check_observation() {
  check(!cox::trace::enabled(), "nothing is traced at first");
  cox::trace::start({.capacity = 64});
  check(cox::trace::enabled(), "trace::start() is seen by the consumer's spans");
  (void)cox::trace::stop();
  cox::LogOptions options;
  options.level = cox::LogLevel::Error;
  options.to_stderr = false;
  cox::log::start(options);
  check(cox::log::enabled(cox::LogSubsystem::Host, cox::LogLevel::Error), "log::start() is seen by the consumer");
  cox::log::stop();
}

// References to buffers that threads of both sides take from one reserve at the same time.
void check_buffers() {
  const auto client = cox::HostClient::load({cox::host_device_type, 0});
  const cox::HostKernel increment("increment", {}, 1,
                                  [](const cox::KernelContext& context) { context.buffer<std::uint32_t>(0)[0] += 1; });
  constexpr int rounds = 2000;
  constexpr std::size_t threads = 3;
  std::vector<std::uint32_t> results(threads);
  {
    std::vector<std::jthread> clients;
    for (std::size_t thread = 0; thread < threads; ++thread)
      clients.emplace_back([&, thread] {
        const cox::Handle counter = client.create(cox::Bytes::copy_of(std::vector<std::uint32_t>(1)));
        for (int round = 0; round < rounds; ++round) {
          const cox::Handle copy = counter;
          client.launch(increment, cox::CubeCount::of_1d(1), cox::KernelArguments{}.with_buffer(copy));
        }
        results[thread] = client.read_one(counter).to_vector<std::uint32_t>()[0];
      });
  }
  for (const std::uint32_t result : results) check(result == rounds, "each launch has run once, in order");
  client.sync().get();
  check(client.memory_usage().bytes_in_use == 0, "dropped buffers are returned");
}

}  // namespace

int main() {
  check_task();
  check_clock();
  check_observation();
  check_buffers();
  check(cox::shutdown_all() == cox::ShutdownOutcome::Drained, "all devices are shut down");
  if (failures == 0) std::puts("one copy of all state");
  return failures == 0 ? 0 : 1;
}
