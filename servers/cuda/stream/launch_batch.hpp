#pragma once

#include <coxswain/device_handle/base/unique_function.hpp>
#include <coxswain/servers/cuda/driver/driver.hpp>
#include <coxswain/servers/cuda/stream/piece_uses.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace cox::detail {

/// A kernel as the driver is given it, without attributes. Refers to its arguments.
struct KernelLaunch {
  struct Argument {
    const void* value;
    std::size_t size;  ///< bytes
  };
  CUfunction function = nullptr;
  std::array<unsigned, 3> grid{1, 1, 1};
  std::array<unsigned, 3> block{1, 1, 1};
  unsigned shared_memory = 0;  ///< bytes, besides what the kernel declares
  std::span<const Argument> arguments;
  PieceUses uses = {};  ///< the memory of it, for L14
};

/// That of a launch by itself, without attributes.
[[nodiscard]] CUlaunchConfig launch_config(const std::array<unsigned, 3>& grid, const std::array<unsigned, 3>& block,
                                           unsigned shared_memory, CUstream stream) noexcept;

/// Kernels that come one behind the other on a stream of the driver, which is given them together, as a graph: a launch
/// costs it 3 to 4 us, a graph of eight 2 us and 0.3 for the arguments of each; even one kernel takes a third less. The
/// graphs are made once, of 1, 2, 4, 8 and 16 kernels, and get other kernels and arguments before each launch; a larger
/// number is made up of these. Device thread only, the context is current.
class LaunchBatch {
 public:
  static constexpr std::size_t max_kernels = 16;
  /// What came of a launch.
  struct Outcome {
    CUresult result;                  ///< what the driver made of it
    bool is_behind_failure;           ///< one that it was given with, and before it, was refused
    std::span<const LaunchUse> uses;  ///< the memory of the launch
  };
  /// Must not throw.
  using Launched = UniqueFunction<void(const Outcome&)>;

  explicit LaunchBatch(const Driver& driver) noexcept : driver_(driver) {}
  LaunchBatch(const LaunchBatch&) = delete;
  LaunchBatch& operator=(const LaunchBatch&) = delete;
  /// Nothing is left, and all that was launched has ended.
  ~LaunchBatch();

  /// Of the kernels, as the driver counts. Before the first launch.
  void set_priority(int priority) noexcept { priority_ = priority; }
  /// Each kernel is launched by itself. Before the first launch.
  void disable_graphs() noexcept { uses_graphs_ = false; }
  [[nodiscard]] bool empty() const noexcept { return entries_.empty(); }
  [[nodiscard]] std::size_t size() const noexcept { return entries_.size(); }

  /// Adds a kernel, with a copy of its arguments, to fewer than `max_kernels`. Throws std::bad_alloc; then nothing has
  /// changed.
  void add(const KernelLaunch& launch, Launched launched);
  /// Gives them to the driver, in their order, and says what came of each.
  void launch(CUstream stream) noexcept;

 private:
  static constexpr std::size_t lengths = 5;  // 1 << (lengths - 1) == most

  struct Entry {
    CUfunction function;
    std::array<unsigned, 3> grid;
    std::array<unsigned, 3> block;
    unsigned shared_memory;
    std::uint32_t first_argument;  // in offsets_
    std::uint32_t end_of_arguments;
    std::uint32_t first_use;  // in uses_
    std::uint32_t end_of_uses;
    Launched callback;
  };
  /// A chain of kernels.
  struct Graph {
    CUgraph graph = nullptr;
    CUgraphExec native = nullptr;
    std::array<CUgraphNode, max_kernels> kernels{};
    bool failed = false;  // it could not be made: it is not tried again
  };

  void launch(std::span<const Entry> entries, std::span<CUresult> results, CUstream stream) noexcept;
  [[nodiscard]] CUresult launch_single(const Entry& entry, CUstream stream) noexcept;
  [[nodiscard]] bool prepare(Graph& graph, std::span<const Entry> entries) noexcept;
  [[nodiscard]] bool make(Graph& graph, std::span<const Entry> entries) noexcept;
  [[nodiscard]] bool change(const Graph& graph, std::span<const Entry> entries) noexcept;
  [[nodiscard]] CUDA_KERNEL_NODE_PARAMS parameters_of(const Entry& entry) noexcept;
  void destroy(Graph& graph) const noexcept;

  const Driver& driver_;
  int priority_ = 0;
  bool uses_graphs_ = true;
  std::vector<Entry> entries_;
  std::vector<Entry> spare_;           // empty, with room
  std::vector<LaunchUse> uses_;        // of all entries
  std::vector<LaunchUse> spare_uses_;  // empty, with room
  /// Of those launches whose uses nobody else keeps; the others' DeviceMemory keeps, see refers_to_buffers().
  std::vector<DeviceBufferReference> references_;
  std::vector<std::byte> arguments_;    // of all entries
  std::vector<std::uint32_t> offsets_;  // in arguments_
  std::vector<void*> values_;           // of the entry that the driver is given
  std::array<Graph, lengths> graphs_;   // by logarithm of the length
  CUfunction last_alone_ = nullptr;     // that was in a batch of its own
};

}  // namespace cox::detail
