#include <coxswain/servers/cuda/stream/launch_batch.hpp>

#include <algorithm>
#include <bit>
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
  entries_.push_back({launch.function, launch.grid, launch.block, launch.shared_memory,
                      static_cast<std::uint32_t>(first_word), static_cast<std::uint32_t>(first_parameter),
                      static_cast<std::uint32_t>(parameter_begins_.size()), static_cast<std::uint32_t>(first_use),
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
  Graph& graph = graphs_[static_cast<std::size_t>(std::countr_zero(entries.size()))];
  if (uses_graphs_ && !changes && prepare(graph, entries)) {
    const CUresult result = driver_.graph_launch(graph.native.get(), stream);
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
bool LaunchBatch::prepare(Graph& graph, std::span<const Entry> entries) noexcept {
  if (graph.failed) return false;
  if (graph.native) return change(graph, entries);
  if (make(graph, entries)) return true;
  graph = {};
  graph.failed = true;
  return false;
}

bool LaunchBatch::make(Graph& graph, std::span<const Entry> entries) noexcept {
  if (driver_.graph_create(graph.graph.out(driver_), 0) != CUDA_SUCCESS) return false;
  CUgraphNode last = nullptr;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const CUDA_KERNEL_NODE_PARAMS parameters = parameters_of(entries[i]);
    if (driver_.graph_add_kernel(&graph.kernels[i], graph.graph.get(), &last, i == 0 ? 0 : 1, &parameters) !=
        CUDA_SUCCESS)
      return false;
    last = graph.kernels[i];
    CUkernelNodeAttrValue value{};
    value.priority = priority_;
    if (priority_ != 0 && driver_.graph_set_attribute(last, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value) != CUDA_SUCCESS)
      return false;
  }
  const auto flags = static_cast<unsigned>(priority_ != 0 ? CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY : 0);
  return driver_.graph_instantiate(graph.native.out(driver_), graph.graph.get(), flags) == CUDA_SUCCESS;
}

bool LaunchBatch::change(const Graph& graph, std::span<const Entry> entries) noexcept {
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const CUDA_KERNEL_NODE_PARAMS parameters = parameters_of(entries[i]);
    if (driver_.graph_change_kernel(graph.native.get(), graph.kernels[i], &parameters) != CUDA_SUCCESS) return false;
  }
  return true;
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
