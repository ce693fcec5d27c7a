#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace cox::stress {

/// What a client can do in one step.
enum class Operation : std::uint8_t {
  Submit,     ///< Fire and forget.
  Blocking,   ///< submit_blocking.
  Exclusive,  ///< Several calls with no other client's call in between.
  Create,     ///< A new buffer with seeded content.
  Read,       ///< A buffer's content, compared byte for byte.
  Launch,     ///< A kernel on one or two buffers, recomputed on the CPU.
  Tensor,     ///< A tensor with padded rows: created, overwritten, read.
  Graph,      ///< Work that is captured once and replayed, its input rewritten in between.
  Profile,    ///< A launch whose time is measured.
  // With several devices, each from its first call to the checked result:
  Transfer,  ///< From one device to another.
  AllReduce,
  AllGather,
  ReduceScatter,
  Broadcast,
  AllToAll,
};

inline constexpr std::array<std::string_view, 15> operation_names{
    "submit",  "blocking", "exclusive",  "create",     "read",           "launch",    "tensor",    "graph",
    "profile", "transfer", "all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all"};
inline constexpr std::size_t operation_count = operation_names.size();
static_assert(operation_count == static_cast<std::size_t>(Operation::AllToAll) + 1);

[[nodiscard]] constexpr std::string_view to_string(Operation operation) noexcept {
  return operation_names[static_cast<std::size_t>(operation)];
}

/// Whether the operation needs several devices.
[[nodiscard]] constexpr bool is_collective(Operation operation) noexcept { return operation >= Operation::Transfer; }

}  // namespace cox::stress
