#include <coxswain/servers/cuda/stream/launch_batch.hpp>

#include <coxswain/servers/cuda/driver/cuda_try.hpp>

#include <algorithm>
#include <bit>
#include <source_location>
#include <utility>

namespace cox::detail {
CUlaunchConfig launch_config(const std::array<unsigned, 3>& grid, const std::array<unsigned, 3>& block,
                             unsigned shared_memory, CUstream stream) noexcept {
  CUlaunchConfig config{};
  config.gridDimX = grid[0];
  config.gridDimY = grid[1];
  config.gridDimZ = grid[2];
  config.blockDimX = block[0];
  config.blockDimY = block[1];
  config.blockDimZ = block[2];
  config.sharedMemBytes = shared_memory;
  config.hStream = stream;
  return config;
}

LaunchGraphs::LaunchGraphs(const Driver& driver, CUfunction empty_kernel, int priority)
    : driver_(driver), has_priority_(priority != 0) {
  const auto require = [](CUresult result, const char* call) {
    if (result != CUDA_SUCCESS) throw_cuda_error(result, call, std::source_location::current());
  };
  std::array<std::byte, max_argument_bytes> argument{};
  std::array<void*, 1> arguments{argument.data()};
  CUDA_KERNEL_NODE_PARAMS parameters{};
  parameters.func = empty_kernel;
  parameters.gridDimX = parameters.gridDimY = parameters.gridDimZ = 1;
  parameters.blockDimX = parameters.blockDimY = parameters.blockDimZ = 1;
  parameters.kernelParams = arguments.data();
  CUkernelNodeAttrValue value{};
  value.priority = priority;
  for (std::size_t length = 0; length < lengths; ++length) {
    Chain& chain = graphs_[length];
    require(driver.graph_create(chain.graph.out(driver), 0), "graph_create");
    CUgraphNode last = nullptr;
    for (std::size_t i = 0; i < std::size_t{1} << length; ++i) {
      require(driver.graph_add_kernel(&chain.kernels[i], chain.graph.get(), &last, i == 0 ? 0 : 1, &parameters),
              "graph_add_kernel");
      last = chain.kernels[i];
      if (has_priority_)
        require(driver.graph_set_attribute(last, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value), "graph_set_attribute");
    }
  }
}

DriverGraphExec LaunchGraphs::instantiate(std::size_t length) const {
  DriverGraphExec made;
  const auto flags = static_cast<unsigned>(has_priority_ ? CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY : 0);
  const CUresult result = driver_.graph_instantiate(made.out(driver_), graphs_[length].graph.get(), flags);
  if (result != CUDA_SUCCESS) throw_cuda_error(result, "graph_instantiate", std::source_location::current());
  return made;
}

void LaunchBatch::add(const KernelLaunch& launch, Launched launched) {
  const std::size_t first_word = words_.size();
  const std::size_t first_parameter = parameter_begins_.size();
  const std::size_t first_use = uses_.size();
  const std::size_t parameters = launch.parameter_begins.size();
  entries_.reserve(std::max(entries_.size() + 1, max_kernels));
  words_.reserve(std::max(first_word + launch.words.size(), max_kernels * 8));
  parameter_begins_.reserve(std::max(first_parameter + parameters, max_kernels * 8));
  values_.reserve(std::max(parameters, max_kernels));
  uses_.reserve(std::max(first_use + launch.uses.size(), max_kernels * 8));
  if (launch.uses.is_kept()) {
    references_.reserve(references_.size() + launch.uses.size());
    launch.uses.for_each([this](const LaunchUse& use) { references_.emplace_back(*use.buffer); });
  }
  words_.insert(words_.end(), launch.words.begin(), launch.words.end());
  parameter_begins_.insert(parameter_begins_.end(), launch.parameter_begins.begin(), launch.parameter_begins.end());
  launch.uses.for_each([this](const LaunchUse& use) { uses_.push_back(use); });
  entries_.push_back(
      {launch.function, launch.grid, launch.block, launch.shared_memory, static_cast<std::uint32_t>(first_word),
       static_cast<std::uint32_t>(first_parameter), static_cast<std::uint32_t>(parameter_begins_.size()),
       launch.words.size_bytes() <= LaunchGraphs::max_argument_bytes, static_cast<std::uint32_t>(first_use),
       static_cast<std::uint32_t>(uses_.size()), std::move(launched)});
}

// Callbacks may add the next launches, so the entries are taken out first.
void LaunchBatch::flush(CUstream stream) noexcept {
  std::vector<Entry> taken = std::exchange(entries_, std::exchange(spare_, {}));
  std::vector<LaunchUse> uses = std::exchange(uses_, std::exchange(spare_uses_, {}));
  const std::vector<DeviceBufferReference> references = std::exchange(references_, {});
  std::array<CUresult, max_kernels> results{};
  for (std::size_t at = 0; at < taken.size();) {
    const std::span<const Entry> left = std::span<const Entry>(taken).subspan(at);
    const std::size_t count = std::bit_floor(left.size());
    launch_together(left.first(count), std::span(results).subspan(at, count), stream);
    at += count;
  }
  words_.clear();
  parameter_begins_.clear();
  bool any_failed = false;
  for (std::size_t i = 0; i < taken.size(); ++i) {
    const Entry& entry = taken[i];
    taken[i].callback(
        {results[i], any_failed, std::span(uses).subspan(entry.first_use, entry.end_of_uses - entry.first_use)});
    any_failed = any_failed || results[i] != CUDA_SUCCESS;
  }
  taken.clear();
  uses.clear();
  spare_ = std::move(taken);
  spare_uses_ = std::move(uses);
}

// Replacing the kernel of a one-kernel graph costs more than a plain launch. So a single kernel that differs from the
// single kernel before it is launched directly.
void LaunchBatch::launch_together(std::span<const Entry> entries, std::span<CUresult> results,
                                  CUstream stream) noexcept {
  if (entries.empty()) return;
  const CUfunction first = entries.front().function;
  const bool changes = entries.size() == 1 && std::exchange(last_alone_, first) != first;
  const auto length = static_cast<std::size_t>(std::countr_zero(entries.size()));
  if (!changes && prepare(length, entries)) {
    const CUresult result = driver_.graph_launch(instances_[length].get(), stream);
    if (result != CUDA_ERROR_OUT_OF_MEMORY) return static_cast<void>(std::ranges::fill(results, result));
  }
  for (std::size_t i = 0; i < entries.size(); ++i) results[i] = launch_single(entries[i], stream);
}

CUresult LaunchBatch::launch_single(const Entry& entry, CUstream stream) noexcept {
  const CUDA_KERNEL_NODE_PARAMS parameters = parameters_of(entry);
  const CUlaunchConfig config = launch_config(entry.grid, entry.block, entry.shared_memory, stream);
  return driver_.launch(&config, entry.function, parameters.kernelParams, nullptr);
}

// Returns whether the graph has been set up for these entries.
bool LaunchBatch::prepare(std::size_t length, std::span<const Entry> entries) noexcept {
  const DriverGraphExec& instance = instances_[length];
  if (!instance) return false;
  if (!std::ranges::all_of(entries, &Entry::has_place_in_graphs)) return false;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const CUDA_KERNEL_NODE_PARAMS parameters = parameters_of(entries[i]);
    if (driver_.graph_change_kernel(instance.get(), graphs_->kernel(length, i), &parameters) != CUDA_SUCCESS)
      return false;
  }
  return true;
}

void LaunchBatch::make_graphs(std::shared_ptr<const LaunchGraphs> graphs, std::size_t most) {
  std::array<DriverGraphExec, LaunchGraphs::lengths> made;
  for (std::size_t length = 0; length < made.size() && (std::size_t{1} << length) <= most; ++length)
    made[length] = graphs->instantiate(length);
  instances_ = std::move(made);
  graphs_ = std::move(graphs);
}

// The result is valid until the next call.
CUDA_KERNEL_NODE_PARAMS LaunchBatch::parameters_of(const Entry& entry) noexcept {
  values_.clear();
  for (std::uint32_t i = entry.first_parameter; i < entry.end_of_parameters; ++i)
    values_.push_back(&words_[entry.first_word + parameter_begins_[i]]);  // add() has reserved the capacity
  CUDA_KERNEL_NODE_PARAMS parameters{};
  parameters.func = entry.function;
  parameters.gridDimX = entry.grid[0];
  parameters.gridDimY = entry.grid[1];
  parameters.gridDimZ = entry.grid[2];
  parameters.blockDimX = entry.block[0];
  parameters.blockDimY = entry.block[1];
  parameters.blockDimZ = entry.block[2];
  parameters.sharedMemBytes = entry.shared_memory;
  parameters.kernelParams = values_.data();
  return parameters;
}

}  // namespace cox::detail
