#include <coxswain/perf/launch/launched.hpp>

#include <coxswain/perf/launch/empty_kernel.hpp>
#include <coxswain/servers/cuda/compile/loaded_kernel.hpp>

#include <array>
#include <exception>

namespace cox::perf {

Launched::Launched(const OpenGpu& gpu, LaunchShape shape)
    : gpu_(gpu), shape_(shape), kernel_(empty_kernel(shape.buffers + shape.scalars)) {
  const CudaClient& client = gpu_.client();
  for (unsigned i = 0; i < shape_.buffers; ++i) {
    buffers_.push_back(client.empty(4096));
    words_.push_back(gpu_.address_of(buffers_.back()));
  }
  for (unsigned i = 0; i < shape_.scalars; ++i) words_.push_back(i);
  kernel_.prepare(client.device_id());
  const detail::LoadedKernel* const loaded = kernel_.loaded(client.device_id().index);
  if (loaded->failure != nullptr) std::rethrow_exception(loaded->failure);
  function_ = loaded->function;
  for (int i = 0; i < 100; ++i) launch();  // all is warm, and what cannot work is found out
  gpu_.finish();
}

KernelArguments Launched::arguments() const {
  KernelArguments arguments;
  for (const Handle& buffer : buffers_) std::move(arguments).with_buffer(buffer);
  for (std::uint64_t i = 0; i < shape_.scalars; ++i) std::move(arguments).with_scalar(i);
  return arguments;
}

void Launched::launch_raw(CUstream stream) const {
  std::array<void*, 16> values{};
  for (std::size_t i = 0; i < words_.size(); ++i)
    values.at(i) = const_cast<std::uint64_t*>(&words_[i]);  // the driver only reads
  CUlaunchConfig config{};
  config.gridDimX = config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = config.blockDimY = config.blockDimZ = 1;
  config.hStream = stream;
  COX_CUDA_TRY(launch(&config, function_, values.data(), nullptr));
}

}  // namespace cox::perf
