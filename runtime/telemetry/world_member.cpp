#include <coxswain/runtime/telemetry/world_member.hpp>

#include <mutex>
#include <utility>

namespace cox {
namespace {

struct Member {
  std::mutex mutex;
  std::optional<WorldMember> member;
};

// Never destroyed: files are written as late as at the exit of the process.
Member& of_process() {
  static Member* const member = new Member;
  return *member;
}

}  // namespace

std::optional<WorldMember> world_member() {
  Member& own = of_process();
  const std::lock_guard lock(own.mutex);
  return own.member;
}

void set_world_member(std::optional<WorldMember> member) {
  Member& own = of_process();
  const std::lock_guard lock(own.mutex);
  own.member = std::move(member);
}

void set_world_clock(std::int64_t offset, std::uint64_t error) {
  Member& own = of_process();
  const std::lock_guard lock(own.mutex);
  if (!own.member) return;
  own.member->clock_offset = offset;
  own.member->clock_error = error;
}

std::filesystem::path file_of_process(const std::filesystem::path& path) {
  const auto member = world_member();
  if (!member || path.empty()) return path;
  std::filesystem::path own = path;
  own.replace_filename(path.stem().string() + "." + std::to_string(member->process) + path.extension().string());
  return own;
}

}  // namespace cox
