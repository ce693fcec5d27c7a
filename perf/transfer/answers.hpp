#pragma once

#include <coxswain/perf/harness/suite.hpp>
#include <coxswain/servers/cuda/server/cuda_server.hpp>

#include <chrono>
#include <functional>

namespace cox::perf {

/// How long an empty task waits for the device thread, and back, in microseconds: p50, p99 and the longest. A thread of
/// its own asks every 100 us, for so long, while this one calls `transfer()` again and again.
Sample answers_during(const CudaClient& client, std::chrono::milliseconds duration,
                      const std::function<void()>& transfer);

}  // namespace cox::perf
