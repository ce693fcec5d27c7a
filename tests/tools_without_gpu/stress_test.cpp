// `cox stress` on four GPUs that are not there: libraries stand in for the driver, NVRTC and NCCL, functions for the
// kernels.

#include <coxswain/runtime/config/process_settings.hpp>
#include <coxswain/tests/stand_ins/cuda_driver.hpp>
#include <coxswain/tests/stand_ins/kernel_functions.hpp>
#include <coxswain/tests/stand_ins/nccl_operations.hpp>
#include <coxswain/tests/stand_ins/peer_kernels.hpp>
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/settings_scope.hpp>
#include <coxswain/tests/tools/command.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

using namespace cox::test;
using cox::tools::Command;
using cox::tools::ExitCode;

namespace {

/// The kernel takes as long as it is told.
FakeCuda::KernelType stalling() {
  using Clock = std::chrono::steady_clock;
  return {{sizeof(std::uint64_t)}, [] {
            return [begin = Clock::time_point()](const FakeCuda::Run& run) mutable {
              if (run.first_look) begin = Clock::now();
              return Clock::now() - begin >= std::chrono::nanoseconds(argument<std::uint64_t>(run, 0));
            };
          }};
}

// As tools/cox/stress/cuda_kernels.cpp has the source of them. Under the stand-in's lock.
void add_kernels(FakeCuda& fake) {
  const auto on_words = [&](const char* name, auto value) {
    fake.kernels[name] = function_kernel({address, word, word}, [value](const FakeCuda::Run& run) {
      const auto y = elements(run, 0, number(run, 2));
      for (std::uint32_t i = 0; i < y.size(); ++i) y[i] = value(y[i], number(run, 1), i);
    });
  };
  on_words("fill", [](std::uint32_t, std::uint32_t a, std::uint32_t) { return a; });
  on_words("iota", [](std::uint32_t, std::uint32_t a, std::uint32_t i) { return a + i; });
  on_words("flip", [](std::uint32_t y, std::uint32_t a, std::uint32_t) { return y ^ a; });
  fake.kernels["axpy"] = function_kernel({address, address, word, word, word}, [](const FakeCuda::Run& run) {
    const auto y = elements(run, 0, number(run, 3));
    const auto x = elements(run, 1, number(run, 4));
    for (std::size_t i = 0; i < std::min(x.size(), y.size()); ++i) y[i] += number(run, 2) * x[i];
  });
  fake.kernels["stalling"] = stalling();
}

FakeCuda& gpus() {
  static FakeCuda& made = []() -> FakeCuda& {
    cox::set_settings({{"cuda.driver", std::string(COX_FAKE_CUDA)},
                       {"compilation.nvrtc", std::string(COX_FAKE_NVRTC)},
                       {"compilation.cache", false},
                       {"collectives.nccl", std::string(COX_FAKE_NCCL)}});
    FakeCuda* const found = find_cuda_stand_in();
    if (found == nullptr) throw std::runtime_error("the stand-in for the driver cannot be opened");
    const std::lock_guard lock(found->mutex);
    add_kernels(*found);
    prepare_nccl_stand_in(*found);
    prepare_peer_kernels(*found);
    return *found;
  }();
  return made;
}

/// Runs it, small collectives by kernels of our own or by NCCL, with the shutdown at its end. Empty: it held; else what
/// it said.
std::string stressed(bool by_nccl, std::vector<std::string> more) {
  FakeCuda& fake = gpus();
  cox::set_settings({{"collectives.peer_memory", !by_nccl}});
  std::vector<std::string> arguments{"stress", "--devices", "cuda", "--clients", "4", "--payload", "64:16KiB"};
  std::ranges::move(more, std::back_inserter(arguments));
  const Command command = Command::run(arguments);
  return (command.code == ExitCode::Ok ? "" : command.out + command.err) + undestroyed_objects(fake);
}

}  // namespace

TEST_CASE("The whole mix holds on four GPUs") {
  const bool by_nccl = GENERATE(false, true);
  CHECK(stressed(by_nccl, {"--operations", "20000"}) == "");
}

TEST_CASE("Each fault ends on four GPUs in what it explains, and all else holds") {
  const bool by_nccl = GENERATE(false, true);
  const std::string fault = GENERATE("throw=0.05,cancel=0.05,expire=0.02", "stall=0.05", "missing=0.01",
                                     "mismatch=0.05", "shutdown=0.005", "leave=0.01");
  CAPTURE(by_nccl, fault);
  CHECK(stressed(by_nccl, {"--operations", "10000", "--fault", fault}) == "");
}

TEST_CASE("All faults at once end on four GPUs in what they explain, and all else holds") {
  const bool by_nccl = GENERATE(false, true);
  CHECK(stressed(
            by_nccl,
            {"--operations", "20000", "--fault",
             "throw=0.01,cancel=0.01,expire=0.01,stall=0.01,missing=0.005,mismatch=0.01,shutdown=0.002,leave=0.002"}) ==
        "");
}

TEST_CASE("With collectives.reproducible the whole mix holds on four GPUs: it has no reductions that are refused") {
  const bool by_nccl = GENERATE(false, true);
  const SettingsScope in_order({{"collectives.reproducible", true}});
  CHECK(stressed(by_nccl, {"--operations", "20000"}) == "");
  CHECK(stressed(by_nccl, {"--operations", "10000", "--fault", "mismatch=0.05,missing=0.01"}) == "");
}
