#include <coxswain/collectives/communicator/bucket_plan.hpp>

#include <algorithm>
#include <array>
#include <optional>

namespace cox {

BucketPlan::BucketPlan(std::span<const Gradient> gradients, const BucketOptions& options)
    : bucket_of_(gradients.size()), offset_of_(gradients.size()) {
  assign(gradients, options);
  order_by_last_member();
  place(gradients);
}

// One bucket is open at a time, or one for each type.
void BucketPlan::assign(std::span<const Gradient> gradients, const BucketOptions& options) {
  struct Open {
    std::optional<std::size_t> bucket;
    std::size_t bytes = 0;
    std::size_t full = 0;
  };
  std::array<Open, element_types.size()> open{};
  for (Open& each : open) each.full = options.first_bucket_bytes;
  for (std::size_t left = gradients.size(); left != 0; --left) {
    const std::size_t gradient = left - 1;
    Open& current = open[options.own_memory ? static_cast<std::size_t>(gradients[gradient].type) : 0];
    if (current.bucket && current.bytes >= current.full) {
      current = {.bucket = std::nullopt, .bytes = 0, .full = options.bucket_bytes};
    }
    if (!current.bucket) {
      current.bucket = members_.size();
      members_.emplace_back();
    }
    members_[*current.bucket].push_back(gradient);
    current.bytes += gradients[gradient].bytes;
  }
}

void BucketPlan::order_by_last_member() {
  std::ranges::sort(members_, std::ranges::greater(), [](const auto& members) { return members.back(); });
  for (std::size_t bucket = 0; bucket < members_.size(); ++bucket)
    for (const std::size_t gradient : members_[bucket]) bucket_of_[gradient] = bucket;
}

void BucketPlan::place(std::span<const Gradient> gradients) {
  for (const auto& members : members_) {
    std::size_t end = 0;
    for (const std::size_t gradient : members) {
      offset_of_[gradient] = end;
      end += (gradients[gradient].bytes + view_alignment - 1) / view_alignment * view_alignment;
    }
    bucket_size_.push_back(end);
  }
}

}  // namespace cox
