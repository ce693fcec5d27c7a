#pragma once

#include <coxswain/device_handle/handle/device_handle.hpp>

#include <chrono>
#include <cstdio>
#include <semaphore>

namespace cox::test {

struct EmptyService {
  explicit EmptyService(DeviceId) {}
};

/// Submits one closure after the other, each with no further traffic and at another moment of the device thread's way
/// to sleep, until `deadline` or `most` were submitted. Returns how many; -1 if one did not start (L3), which stderr
/// then says. Blocks. The device thread is to park without spinning.
inline long submit_singly(const DeviceHandle<EmptyService>& handle, std::chrono::steady_clock::time_point deadline,
                          long most) {
  using Clock = std::chrono::steady_clock;
  using namespace std::chrono_literals;
  std::binary_semaphore ran{0};
  long sent = 0;
  unsigned noise = 1;
  while (sent < most && Clock::now() < deadline) {
    noise = noise * 1103515245 + 12345;
    for (unsigned i = 0; i < noise >> 22; ++i) SystemPlatform::pause();
    handle.submit([&](EmptyService&) { ran.release(); });
    ++sent;
    const auto submitted = Clock::now();
    bool started = false;
    while (!started && Clock::now() - submitted < 2s) started = ran.try_acquire();
    // The machine may have stood still: ten more seconds in which every thread that can run does.
    if (started || ran.try_acquire_for(10s)) continue;
    handle.submit_blocking([](EmptyService&) {});  // wakes the device thread
    std::fprintf(stderr, "%s: submit %ld did not start within 12 s; after another call it %s\n",
                 handle.device_id().to_string().c_str(), sent, ran.try_acquire() ? "ran" : "had not run");
    return -1;
  }
  return sent;
}

}  // namespace cox::test
