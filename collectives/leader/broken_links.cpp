#include <coxswain/collectives/leader/broken_links.hpp>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <ranges>
#include <tuple>

namespace cox::detail::world {

void BrokenLinks::add(std::uint16_t process, std::uint16_t other, Time now) {
  since_[process].emplace(other, now);
  since_[other].emplace(process, now);
}

void BrokenLinks::remove(std::uint16_t process) {
  const auto removed = since_.extract(process);
  if (!removed) return;
  for (const std::uint16_t other : removed.mapped() | std::views::keys) {
    const auto at = since_.find(other);
    at->second.erase(process);
    if (at->second.empty()) since_.erase(at);
  }
}

std::vector<BrokenLinks::Leaving> BrokenLinks::take_leaving(Time until, std::optional<std::uint16_t> stays) {
  // Those without a link to the process that stays leave in any case, so their other links need no other process.
  std::vector<std::tuple<bool, std::size_t, std::uint16_t>> order;
  for (const auto& [process, others] : since_)
    if (process != stays) order.emplace_back(stays && others.contains(*stays), others.size(), process);
  std::ranges::sort(order, std::greater());
  std::vector<Leaving> leaving;
  for (const std::uint16_t process : order | std::views::elements<2>) {
    const auto found = since_.find(process);
    if (found == since_.end()) continue;
    if (std::ranges::none_of(found->second | std::views::values, [&](Time since) { return since <= until; })) continue;
    const auto others = found->second | std::views::keys;
    leaving.push_back({process, {others.begin(), others.end()}});
    remove(process);
  }
  return leaving;
}

}  // namespace cox::detail::world
