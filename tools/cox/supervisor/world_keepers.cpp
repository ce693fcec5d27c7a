#include <coxswain/tools/cox/supervisor/world_keepers.hpp>

#include <algorithm>
#include <sstream>

namespace cox::tools {

WorldKeepers::WorldKeepers(const std::filesystem::path& sockets, std::size_t processes, KeeperLimits limits) {
  for (std::size_t process = 0; process < processes; ++process)
    keepers_.push_back(
        std::make_unique<Keeper>(std::filesystem::path(sockets) += "-" + std::to_string(process), limits));
}

void WorldKeepers::begin_run() {
  for (const auto& keeper : keepers_) keeper->begin_run();
}

std::vector<int> WorldKeepers::descriptors() const {
  std::vector<int> all;
  for (const auto& keeper : keepers_) {
    const std::vector<int> its = keeper->descriptors();
    all.insert(all.end(), its.begin(), its.end());
  }
  return all;
}

void WorldKeepers::serve() {
  for (const auto& keeper : keepers_) keeper->serve(use(keeper.get()));
}

bool WorldKeepers::end_run() {
  serve();
  bool any = false;
  bool progress = true;
  for (const auto& keeper : keepers_) {
    const bool used = keeper->was_used();
    const bool likely = keeper->end_run();
    if (!used && !keeper->holds_memory()) continue;
    any = true;
    progress = progress && likely;
  }
  return any && progress;
}

void WorldKeepers::lose_gpu_memory() {
  for (const auto& keeper : keepers_) keeper->lose_gpu_memory();
}

bool WorldKeepers::was_used() const noexcept {
  return std::ranges::any_of(keepers_, [](const auto& keeper) { return keeper->was_used(); });
}

bool WorldKeepers::holds_memory() const noexcept {
  return std::ranges::any_of(keepers_, [](const auto& keeper) { return keeper->holds_memory(); });
}

KeptUse WorldKeepers::use(const Keeper* without) const noexcept {
  KeptUse sum;
  for (const auto& keeper : keepers_)
    if (keeper.get() != without) sum += keeper->use();
  return sum;
}

std::string WorldKeepers::to_string() const {
  std::string text;
  for (std::size_t process = 0; process < keepers_.size(); ++process) {
    std::istringstream lines(keepers_[process]->to_string());
    for (std::string line; std::getline(lines, line);)
      text += "process " + std::to_string(process) + ": " + line + "\n";
  }
  return text;
}

}  // namespace cox::tools
