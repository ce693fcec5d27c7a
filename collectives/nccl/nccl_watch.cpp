#include <coxswain/collectives/nccl/nccl_watch.hpp>

#include <algorithm>

namespace cox::detail {

NcclWatch& NcclWatch::of_process() {
  static auto& watch = *new NcclWatch;
  return watch;
}

void NcclWatch::add(const std::shared_ptr<NcclClique>& clique, Time when) {
  {
    const std::lock_guard lock(mutex_);
    cliques_.insert_or_assign(clique.get(), clique);
  }
  watchdog_.watch(when);
}

void NcclWatch::note_ended() noexcept {
  NcclClique* last = nullptr;
  while (const auto clique = after(last)) {
    last = clique.get();
    clique->note_ended();
  }
}

std::optional<NcclWatch::Time> NcclWatch::look(Time now) noexcept {
  std::optional<Time> next;
  NcclClique* last = nullptr;
  while (const auto clique = after(last)) {
    last = clique.get();
    if (const auto when = clique->look(now)) next = std::min(next.value_or(*when), *when);
  }
  return next;
}

// The one behind `last` in the order of addresses, which may be that of one that is gone: no lock is held while they
// are looked at.
std::shared_ptr<NcclClique> NcclWatch::after(NcclClique* last) noexcept {
  const std::lock_guard lock(mutex_);
  for (auto next = cliques_.upper_bound(last); next != cliques_.end(); next = cliques_.erase(next))
    if (auto clique = next->second.lock()) return clique;
  return nullptr;
}

}  // namespace cox::detail
