#include <coxswain/tools/cox/doctor/gather.hpp>

#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <thread>

namespace cox::tools {
namespace {

std::optional<std::uint64_t> soft_limit(__rlimit_resource resource) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return limit.rlim_cur;
}

std::string first_line(const char* path) {
  std::string line;
  std::ifstream file(path);
  std::getline(file, line);
  return line;
}

std::optional<std::uint64_t> file_system_size(const char* path) {
  struct statvfs status{};
  if (statvfs(path, &status) != 0) return std::nullopt;
  return std::uint64_t{status.f_blocks} * status.f_frsize;
}

}  // namespace

LimitFacts gather_limits() {
  LimitFacts limits;
  limits.open_files = soft_limit(RLIMIT_NOFILE);
  limits.locked_memory = soft_limit(RLIMIT_MEMLOCK);
  limits.address_space = soft_limit(RLIMIT_AS);
  limits.shared_memory = file_system_size("/dev/shm");
  limits.cores = static_cast<std::size_t>(sysconf(_SC_NPROCESSORS_ONLN));
  limits.usable_cores = std::thread::hardware_concurrency();  // cores of the affinity mask, which a cpuset restricts
  limits.core_quota = core_quota(first_line("/sys/fs/cgroup/cpu.max"));
  limits.huge_pages = chosen_word(first_line("/sys/kernel/mm/transparent_hugepage/enabled"));
  std::error_code ignored;
  limits.infiniband = std::filesystem::exists("/sys/class/infiniband", ignored) &&
                      !std::filesystem::is_empty("/sys/class/infiniband", ignored);
  return limits;
}

std::string chosen_word(std::string_view text) {
  const std::size_t open = text.find('[');
  const std::size_t close = text.find(']');
  if (open == std::string_view::npos || close == std::string_view::npos || close < open) return {};
  return std::string(text.substr(open + 1, close - open - 1));
}

std::optional<double> core_quota(std::string_view cpu_max) {
  std::uint64_t quota = 0;
  std::uint64_t period = 0;
  const char* const end = cpu_max.data() + cpu_max.size();
  const auto [gap, error] = std::from_chars(cpu_max.data(), end, quota);
  if (error != std::errc() || gap == end || *gap != ' ') return std::nullopt;
  if (std::from_chars(gap + 1, end, period).ec != std::errc() || period == 0) return std::nullopt;
  return static_cast<double>(quota) / static_cast<double>(period);
}

}  // namespace cox::tools
