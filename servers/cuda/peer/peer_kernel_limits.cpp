#include <coxswain/servers/cuda/peer/peer_kernel_limits.hpp>

#include <coxswain/servers/cuda/peer/peer_kernels_source.hpp>

#include <algorithm>

namespace cox::detail {
namespace {

constexpr std::size_t kibibytes = std::size_t{1} << 10U;
constexpr std::size_t mebibytes = std::size_t{1} << 20U;

// Measured with two and with four H200s. With two ranks one shot writes no more than two shots do.
constexpr PeerKernelLimits two_ranks{.lines = 256 * kibibytes,
                                     .one_shot = 8 * mebibytes,
                                     .all_reduce = 8 * mebibytes,
                                     .block_lines = 256 * kibibytes,
                                     .broadcast_lines = 256 * kibibytes,
                                     .blocks = 8 * mebibytes,
                                     .broadcast = 8 * mebibytes,
                                     .thread_blocks = 64};
constexpr PeerKernelLimits four_ranks{.lines = 64 * kibibytes,
                                      .one_shot = 512 * kibibytes,
                                      .all_reduce = 8 * mebibytes,
                                      .block_lines = 64 * kibibytes,
                                      .broadcast_lines = 128 * kibibytes,
                                      .blocks = 8 * mebibytes,
                                      .broadcast = 1 * mebibytes,
                                      .thread_blocks = 64};
// Not measured: each rank writes twice as much in one shot, and as lines.
constexpr PeerKernelLimits eight_ranks{.lines = 32 * kibibytes,
                                       .one_shot = 256 * kibibytes,
                                       .all_reduce = 8 * mebibytes,
                                       .block_lines = 32 * kibibytes,
                                       .broadcast_lines = 64 * kibibytes,
                                       .blocks = 8 * mebibytes,
                                       .broadcast = 1 * mebibytes,
                                       .thread_blocks = 64};

}  // namespace

bool PeerKernelLimits::fit(std::size_t ranks) const noexcept {
  const std::size_t others = ranks - 1;
  return std::max({lines, block_lines, broadcast_lines}) <= most_by_lines && one_shot * others <= most_before_flags &&
         std::max({all_reduce, broadcast}) <= most_before_flags && blocks / ranks * others <= most_before_flags &&
         (ranks > 2 || one_shot == all_reduce) &&  // there is no kernel for two shots of two ranks
         thread_blocks >= 1 && thread_blocks <= peer_kernel_blocks;
}

const PeerKernelLimits& peer_kernel_limits(std::size_t ranks) noexcept {
  if (ranks <= 2) return two_ranks;
  return ranks <= 4 ? four_ranks : eight_ranks;
}

}  // namespace cox::detail
