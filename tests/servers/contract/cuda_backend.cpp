#if COX_CUDA_TESTS

#include <coxswain/tests/servers/contract/cuda_backend.hpp>

#include <coxswain/runtime/config/process_settings.hpp>
#include <coxswain/tests/servers/contract/cuda_kernels.hpp>
#include <coxswain/tests/servers/contract/cuda_stand_in.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <new>
#include <span>
#include <stdexcept>
#include <thread>
#include <utility>

namespace cox::test {
namespace {

// Streams that share a connection to the GPU wait for each other: one that a gate holds up would hold up others. The
// driver looks at this when it starts.
[[maybe_unused]] const int connections = ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);

std::uint32_t elements_of(const Handle& data) {
  return static_cast<std::uint32_t>(data.size_in_used() / sizeof(std::uint32_t));
}
CubeCount cubes_of(std::uint32_t units, std::uint32_t elements) {
  constexpr std::uint32_t most = 4096;  // the kernels go on with the rest
  return CubeCount::of_1d(std::max(1U, std::min(most, elements / units)));
}
KernelArguments both(const Handle& from, const Handle& to) {
  return KernelArguments{}.with_buffer(from, Access::Read).with_buffer(to);
}
CudaBackend::Work element_wise(const CudaKernel& kernel, KernelArguments buffers, const Handle& to) {
  const std::uint32_t elements = elements_of(to);
  return {kernel, std::move(buffers).with_scalar(elements), cubes_of(256, elements)};
}

/// Until the word, which a kernel writes, is not 0; whether it has come to that.
bool wait_for(std::uint32_t& word, std::chrono::seconds limit) {
  const auto begin = std::chrono::steady_clock::now();
  while (std::atomic_ref(word).load(std::memory_order_acquire) == 0) {  // pairs with st.release.sys in the kernels
    if (std::chrono::steady_clock::now() - begin > limit) return false;
    std::this_thread::yield();
  }
  return true;
}

}  // namespace

std::string CudaBackend::missing_devices(std::size_t count) {
  if (const std::string& lack = prepare_cuda_stand_in(); !lack.empty()) return lack;
  const std::size_t found = enumerate_cuda_devices().size();
  if (found >= count) return {};
  return std::to_string(count) + " GPUs, found " + std::to_string(found) + ". " + why_no_cuda();
}

void CudaBackend::set_options(const DeviceOptions& options) {
  set_settings({{"cuda.memory", std::uint64_t{options.memory}}, {"cuda.pinned_memory", std::uint64_t{options.pinned}}});
}

void CudaBackend::reset_options() { reset_settings({"cuda.memory", "cuda.pinned_memory"}); }

void CudaBackend::prepare(DeviceId device) {
  for (const CudaKernel* kernel : cuda_kernels().all()) kernel->prepare(device);
}

Bytes CudaBackend::peek(const Client& client, const CudaResource& resource) {
  const Handle to = client.empty(resource.size);
  const auto bytes = static_cast<std::uint32_t>(resource.size);
  client.launch(cuda_kernels().peek, cubes_of(256, bytes),
                KernelArguments{}.with_buffer(to).with_scalar(bytes).with_scalar(resource.address));
  return client.read_one(to);
}

void CudaBackend::poke(const Client& client, const CudaResource& resource, const std::vector<std::byte>& bytes) {
  const auto size = static_cast<std::uint32_t>(bytes.size());
  client.launch(cuda_kernels().poke, cubes_of(256, size),
                KernelArguments{}
                    .with_buffer(client.create(Bytes::copy_of(bytes)), Access::Read)
                    .with_scalar(size)
                    .with_scalar(resource.address));
  client.sync().get();
}

CudaBackend::Work CudaBackend::fill(const Handle& data, std::uint32_t value) {
  const std::uint32_t elements = elements_of(data);
  return {cuda_kernels().fill, KernelArguments{}.with_buffer(data).with_scalar(elements).with_scalar(value),
          elements <= 4096 ? CubeCount::single() : CubeCount::of_1d(4096)};
}
CudaBackend::Work CudaBackend::copy(const Handle& from, const Handle& to) {
  return element_wise(cuda_kernels().copy, both(from, to), to);
}
CudaBackend::Work CudaBackend::add_to(const Handle& from, const Handle& to) {
  return element_wise(cuda_kernels().add_to, both(from, to), to);
}
CudaBackend::Work CudaBackend::plus_one(const Handle& from, const Handle& to) {
  return element_wise(cuda_kernels().plus_one, both(from, to), to);
}
CudaBackend::Work CudaBackend::add(const Handle& left, const Handle& right, const Handle& to) {
  return element_wise(
      cuda_kernels().add,
      KernelArguments{}.with_buffer(left, Access::Read).with_buffer(right, Access::Read).with_buffer(to), to);
}
CudaBackend::Work CudaBackend::multiply_add(const Handle& data, std::uint32_t factor, std::uint32_t summand) {
  const std::uint32_t elements = elements_of(data);
  return {cuda_kernels().multiply_add,
          KernelArguments{}.with_buffer(data).with_scalar(elements).with_scalar(factor).with_scalar(summand),
          CubeCount::of_1d((elements + 31) / 32)};
}
CudaBackend::Work CudaBackend::indices(const Handle& data, CubeCount count) {
  return {cuda_kernels().indices, KernelArguments{}.with_buffer(data), std::move(count)};
}
CudaBackend::Work CudaBackend::nothing(CubeDim dim) { return {cuda_kernels().nothing.with_cube_dim(dim)}; }
CudaBackend::Work CudaBackend::misused() { return {cuda_kernels().misused}; }
CudaBackend::Work CudaBackend::impossible() { return {broken_cuda_kernel()}; }
CudaBackend::Work CudaBackend::fail_after_submit(const Client& client) {
  const std::vector<std::uint32_t> count{1, 1, 70'000};
  return nothing().with_count(CubeCount::dynamic(client.create(Bytes::copy_of(count))));
}

CudaBackend::Work CudaBackend::fail_on(const Client& client, const Handle& data) {
  const std::vector<std::uint32_t> count{1, 1, 70'000};
  return fill(data, 666).with_count(CubeCount::dynamic(client.create(Bytes::copy_of(count))));
}
CudaBackend::Work CudaBackend::misused_on(const Handle& data) {
  return {cuda_kernels().misused, KernelArguments{}.with_buffer(data)};
}

CudaBackend::Gate::Gate(const Client& client) {
  const std::size_t size = 64;  // a cache line of its own
  memory_ = std::move(client.reserve_staging({&size, 1}).front());
  if (memory_.property() != AllocationProperty::Pinned) throw std::runtime_error("no page-locked memory for a gate");
  words_ = ::new (memory_.data()) Words{};
}

CudaBackend::Gate::~Gate() {
  std::atomic_ref(words_->open).store(1, std::memory_order_release);  // as in open()
  // The kernel may be about to look at the words. If it has never run, they are left to it.
  if (launched_ && !wait_for(words_->left, std::chrono::seconds(10))) new Bytes(std::move(memory_));
}

CudaBackend::Work CudaBackend::Gate::work(const CudaKernel& kernel, KernelArguments arguments) {
  launched_ = true;
  return {kernel, std::move(arguments)};
}
CudaBackend::Work CudaBackend::Gate::hold() { return work(cuda_kernels().gate, KernelArguments{}.with_scalar(words_)); }
CudaBackend::Work CudaBackend::Gate::hold(const Handle& data, Access access) {
  return work(cuda_kernels().gate_hold, KernelArguments{}.with_buffer(data, access).with_scalar(words_));
}
CudaBackend::Work CudaBackend::Gate::fill(const Handle& data, std::uint32_t value) {
  return work(
      cuda_kernels().gate_fill,
      KernelArguments{}.with_buffer(data).with_scalar(words_).with_scalar(elements_of(data)).with_scalar(value));
}
CudaBackend::Work CudaBackend::Gate::copy(const Handle& from, const Handle& to) {
  return work(cuda_kernels().gate_copy, both(from, to).with_scalar(words_).with_scalar(elements_of(to)));
}
CudaBackend::Work CudaBackend::Gate::sum(const Handle& data, Access access) {
  return work(cuda_kernels().gate_sum,
              KernelArguments{}.with_buffer(data, access).with_scalar(words_).with_scalar(elements_of(data)));
}

void CudaBackend::Gate::wait_until_entered() {
  if (!wait_for(words_->entered, std::chrono::seconds(60))) throw std::runtime_error("a gate was not entered");
}
void CudaBackend::Gate::open() {
  const bool closed = std::atomic_ref(words_->open).load(std::memory_order_relaxed) == 0;
  if (closed && std::atomic_ref(words_->left).load(std::memory_order_acquire) != 0)
    throw std::runtime_error("a gate was not opened in time");
  std::atomic_ref(words_->open).store(1, std::memory_order_release);  // pairs with ld.acquire.sys in the kernels
}
std::uint32_t CudaBackend::Gate::seen() const {
  return std::atomic_ref(words_->sum).load(std::memory_order_acquire);  // as wait_for
}

}  // namespace cox::test

#endif
