#if COX_CUDA_TESTS

#include <coxswain/tests/servers/contract/cuda_stand_in.hpp>

#include <coxswain/servers/cuda/driver/nvrtc.hpp>
#include <coxswain/tests/fake_cuda/fake_cuda.hpp>
#include <coxswain/tests/servers/contract/program_kernels.hpp>
#include <coxswain/tests/stand_ins/cuda_driver.hpp>
#include <coxswain/tests/stand_ins/kept_kernels.hpp>
#include <coxswain/tests/stand_ins/kernel_functions.hpp>
#include <coxswain/tests/stand_ins/nccl_operations.hpp>
#include <coxswain/tests/stand_ins/peer_kernels.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

namespace cox::test {
namespace {

using Run = FakeCuda::Run;

struct Words {  // of CudaBackend::Gate
  std::uint32_t entered;
  std::uint32_t open;
  std::uint32_t left;
  std::uint32_t sum;
};

/// A kernel that does it when its gate opens, or after 15 s, as on a GPU. The address of the gate's words is the
/// argument of that index.
FakeCuda::KernelType gate(
    std::vector<std::size_t> parameters, std::size_t words_at,
    std::function<void(const Run&, Words&)> what = [](const Run&, Words&) {}) {
  return {std::move(parameters), [=] {
            return [=, begin = std::chrono::steady_clock::time_point()](const Run& run) mutable {
              auto& words = *argument<Words*>(run, words_at);
              const auto now = std::chrono::steady_clock::now();
              if (run.first_look) {
                begin = now;
                std::atomic_ref(words.entered).store(1, std::memory_order_release);
              }
              // Pairs with what the test stores.
              const bool open = std::atomic_ref(words.open).load(std::memory_order_acquire) != 0;
              if (!open && now - begin < std::chrono::seconds(15)) return false;
              what(run, words);
              std::atomic_ref(words.left).store(1, std::memory_order_release);
              return true;
            };
          }};
}

void copy(const Run& run, std::size_t count) {
  const auto from = elements(run, 0, count);
  const auto to = elements(run, 1, count);
  for (std::size_t i = 0; i < count; ++i) to[i] = from[i];
}

void multiply_add(const Run& run) {
  const std::size_t units = std::size_t{32} * run.cubes[0];
  for (std::uint32_t& element : elements(run, 0, std::min<std::size_t>(units, number(run, 1))))
    element = element * number(run, 2) + number(run, 3);
}

void indices(const Run& run) {
  auto* to = argument<std::uint32_t*>(run, 0);
  for (std::uint32_t z = 0; z < run.cubes[2]; ++z)
    for (std::uint32_t y = 0; y < run.cubes[1]; ++y)
      for (std::uint32_t x = 0; x < run.cubes[0]; ++x)
        for (std::uint32_t unit = 0; unit < 4; ++unit) *to++ = x + 10 * y + 100 * z + 1000 * unit;
}

FakeCuda::KernelType program_kernel(const ProgramJob& job) {
  const std::size_t buffers = job.ins + job.outs;
  std::vector<std::size_t> parameters(buffers, address);
  parameters.insert(parameters.end(), 3 + buffers, word);
  return function_kernel(std::move(parameters), [=](const Run& run) {
    ProgramOperands operands;
    for (std::size_t i = 0; i < job.ins; ++i)
      operands.in[i] = elements<const std::uint32_t>(run, i, number(run, buffers + 3 + i));
    for (std::size_t i = 0; i < job.outs; ++i)
      operands.out[i] = elements(run, job.ins + i, number(run, buffers + 3 + job.ins + i));
    const ProgramScalars scalars{number(run, buffers), number(run, buffers + 1), number(run, buffers + 2)};
    const std::uint64_t cubes = std::uint64_t{run.cubes[0]} * run.cubes[1] * run.cubes[2];
    for (std::uint64_t cube = 0; cube < cubes; ++cube) run_cube(job, scalars, cube, operands);
  });
}

// What cuda_kernels.cpp has the source of. Under the stand-in's lock.
void add_vocabulary(FakeCuda& fake) {
  auto& kernels = fake.kernels;
  kernels["fill"] = function_kernel({address, word, word}, [](const Run& run) {
    for (std::uint32_t& element : elements(run, 0, number(run, 1))) element = number(run, 2);
  });
  kernels["copy"] = function_kernel({address, address, word}, [](const Run& run) { copy(run, number(run, 2)); });
  kernels["add_to"] = function_kernel({address, address, word}, [](const Run& run) {
    const auto from = elements(run, 0, number(run, 2));
    for (std::size_t i = 0; i < from.size(); ++i) elements(run, 1, from.size())[i] += from[i];
  });
  kernels["plus_one"] = function_kernel({address, address, word}, [](const Run& run) {
    const auto from = elements(run, 0, number(run, 2));
    for (std::size_t i = 0; i < from.size(); ++i) elements(run, 1, from.size())[i] = from[i] + 1;
  });
  kernels["add"] = function_kernel({address, address, address, word}, [](const Run& run) {
    const std::size_t count = number(run, 3);
    for (std::size_t i = 0; i < count; ++i)
      elements(run, 2, count)[i] = elements(run, 0, count)[i] + elements(run, 1, count)[i];
  });
  kernels["multiply_add"] = function_kernel({address, word, word, word}, multiply_add);
  kernels["indices"] = function_kernel({address}, indices);
  kernels["nothing"] = function_kernel({}, [](const Run&) {});
  kernels["misused"] = function_kernel({address, address, address}, [](const Run&) {});
  kernels["peek"] = function_kernel({address, word, address}, [](const Run& run) {
    std::memcpy(argument<void*>(run, 0), argument<const void*>(run, 2), number(run, 1));
  });
  kernels["poke"] = function_kernel({address, word, address}, [](const Run& run) {
    std::memcpy(argument<void*>(run, 2), argument<const void*>(run, 0), number(run, 1));
  });
  kernels["gate"] = gate({address}, 0);
  kernels["gate_hold"] = gate({address, address}, 1);
  kernels["gate_fill"] = gate({address, address, word, word}, 1, [](const Run& run, Words&) {
    for (std::uint32_t& element : elements(run, 0, number(run, 2))) element = number(run, 3);
  });
  kernels["gate_copy"] =
      gate({address, address, address, word}, 2, [](const Run& run, Words&) { copy(run, number(run, 3)); });
  kernels["gate_sum"] = gate({address, address, word}, 1, [](const Run& run, Words& words) {
    std::uint32_t sum = 0;
    for (const std::uint32_t element : elements(run, 0, number(run, 2))) sum += element;
    std::atomic_ref(words.sum).store(sum, std::memory_order_relaxed);  // before it leaves
  });
}

std::string prepare() {
  FakeCuda* const found = find_cuda_stand_in();
  if (found == nullptr) return {};
  FakeCuda& fake = *found;
  const std::lock_guard lock(fake.mutex);
  add_vocabulary(fake);
  for (const ProgramJob& job : program_jobs) fake.kernels[cuda_name_of(job)] = program_kernel(job);
  fake.kernels[cuda_name_of(count_job)] = program_kernel(count_job);
  prepare_kept_kernels(fake);
  prepare_nccl_stand_in(fake);
  prepare_peer_kernels(fake);
  return detail::find_nvrtc().nvrtc == nullptr ? "NVRTC: " + detail::find_nvrtc().error : "";
}

}  // namespace

const std::string& prepare_cuda_stand_in() {
  static const std::string lack = prepare();
  return lack;
}

}  // namespace cox::test

#endif
