#pragma once

#include <coxswain/device_handle/base/unique_function.hpp>
#include <coxswain/servers/cuda/driver/driver_object.hpp>
#include <coxswain/servers/cuda/stream/piece_uses.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace cox::detail {

/// A kernel launch without attributes, as passed to the driver. Refers to its arguments.
struct KernelLaunch {
  CUfunction function = nullptr;
  std::array<unsigned, 3> grid{1, 1, 1};
  std::array<unsigned, 3> block{1, 1, 1};
  unsigned shared_memory = 0;                       ///< bytes of dynamic shared memory
  std::span<const std::uint64_t> words;             ///< values of the parameters, each from a new word on
  std::span<const std::uint32_t> parameter_begins;  ///< index of the first word of each parameter
  PieceUses uses = {};                              ///< memory for the checks of L14
};

/// The configuration of a single launch without attributes.
[[nodiscard]] CUlaunchConfig launch_config(const std::array<unsigned, 3>& grid, const std::array<unsigned, 3>& block,
                                           unsigned shared_memory, CUstream stream) noexcept;

/// Chains of 1, 2, 4, 8 and 16 kernels that do nothing, of which the batches of a device instantiate theirs. Never
/// changed. With the context current.
class LaunchGraphs {
 public:
  static constexpr std::size_t lengths = 5;
  static constexpr std::size_t max_kernels = std::size_t{1} << (lengths - 1);
  /// Size of the arguments of a kernel that takes the place of one of these.
  static constexpr std::size_t max_argument_bytes = 4096;

  /// `empty_kernel`: of load_empty_kernel(). `priority`: of the kernels, in the driver's numbering. Throws CudaError.
  LaunchGraphs(const Driver& driver, CUfunction empty_kernel, int priority);

  /// Instantiates the chain of 1 << `length` kernels. Throws CudaError.
  [[nodiscard]] DriverGraphExec instantiate(std::size_t length) const;
  /// The kernel with that number in that chain, as the driver names it in all instances.
  [[nodiscard]] CUgraphNode kernel(std::size_t length, std::size_t number) const noexcept {
    return graphs_[length].kernels[number];
  }

 private:
  struct Chain {
    DriverGraph graph;
    std::array<CUgraphNode, max_kernels> kernels{};
  };

  const Driver& driver_;
  const bool has_priority_;
  std::array<Chain, lengths> graphs_;
};

/// Consecutive kernels on one driver stream, passed to the driver together as a graph. A single launch takes the driver
/// 3 to 4 us; a graph of eight kernels takes 2 us, plus 0.3 us per kernel to set its arguments; even a graph of one
/// kernel takes a third less than a launch. Graphs of 1, 2, 4, 8 and 16 kernels are made once; their kernels and
/// arguments are replaced before each launch. Other numbers of kernels are split into these sizes. Device thread only,
/// with the context current.
class LaunchBatch {
 public:
  static constexpr std::size_t max_kernels = LaunchGraphs::max_kernels;
  /// The outcome of one launch.
  struct Outcome {
    CUresult result;                  ///< result of the driver call
    bool is_behind_failure;           ///< an earlier launch of the same batch was refused
    std::span<const LaunchUse> uses;  ///< the memory that the launch uses
  };
  /// Must not throw.
  using Launched = UniqueFunction<void(const Outcome&)>;

  explicit LaunchBatch(const Driver& driver) noexcept : driver_(driver) {}
  LaunchBatch(const LaunchBatch&) = delete;
  LaunchBatch& operator=(const LaunchBatch&) = delete;
  /// Precondition: the batch is empty, and all launched work has completed.
  ~LaunchBatch() = default;

  /// Makes the graphs for as many kernels as `most`. Without them each kernel is launched separately. To be called
  /// while no kernel of the GPU waits for another GPU: to instantiate a graph, the driver may wait for all running
  /// kernels, with a lock that others need (T1). Throws CudaError.
  void make_graphs(std::shared_ptr<const LaunchGraphs> graphs, std::size_t most);
  [[nodiscard]] bool empty() const noexcept { return entries_.empty(); }
  [[nodiscard]] std::size_t size() const noexcept { return entries_.size(); }

  /// Adds a kernel, with a copy of its arguments. Precondition: size() < `max_kernels`. Throws std::bad_alloc; then
  /// nothing has changed.
  void add(const KernelLaunch& launch, Launched launched);
  /// Passes all kernels to the driver, in order, then calls each callback with the outcome of its launch.
  void flush(CUstream stream) noexcept;

 private:
  struct Entry {
    CUfunction function;
    std::array<unsigned, 3> grid;
    std::array<unsigned, 3> block;
    unsigned shared_memory;
    std::uint32_t first_word;       // in words_
    std::uint32_t first_parameter;  // in parameter_begins_
    std::uint32_t end_of_parameters;
    bool has_place_in_graphs;  // for its arguments
    std::uint32_t first_use;   // in uses_
    std::uint32_t end_of_uses;
    Launched callback;
  };
  void launch_together(std::span<const Entry> entries, std::span<CUresult> results, CUstream stream) noexcept;
  [[nodiscard]] CUresult launch_single(const Entry& entry, CUstream stream) noexcept;
  [[nodiscard]] bool prepare(std::size_t length, std::span<const Entry> entries) noexcept;
  [[nodiscard]] CUDA_KERNEL_NODE_PARAMS parameters_of(const Entry& entry) noexcept;

  const Driver& driver_;
  std::vector<Entry> entries_;
  std::vector<Entry> spare_;           // empty, keeps its capacity
  std::vector<LaunchUse> uses_;        // of all entries
  std::vector<LaunchUse> spare_uses_;  // empty, keeps its capacity
  /// Buffers of launches whose uses were kept (PieceUses::is_kept), which their owner may release before flush().
  /// Buffers of the other launches are kept by DeviceMemory; see CudaStreams::refers_to_buffers().
  std::vector<DeviceBufferReference> references_;
  std::vector<std::uint64_t> words_;                              // of all entries
  std::vector<std::uint32_t> parameter_begins_;                   // of all entries
  std::vector<void*> values_;                                     // of the entry that is passed to the driver
  std::shared_ptr<const LaunchGraphs> graphs_;                    // null: kernels are launched separately
  std::array<DriverGraphExec, LaunchGraphs::lengths> instances_;  // by log2 of the number of kernels
  CUfunction last_alone_ = nullptr;                               // kernel of the last batch of one
};

}  // namespace cox::detail
