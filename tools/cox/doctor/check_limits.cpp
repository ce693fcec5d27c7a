#include <coxswain/runtime/base/byte_count.hpp>
#include <coxswain/tools/cox/doctor/check.hpp>

#include <algorithm>

namespace cox::tools {
namespace {

using Severity = Finding::Severity;

constexpr std::uint64_t gibibyte = std::uint64_t{1} << 30U;
constexpr std::uint64_t enough_files = 1024;

std::string bytes(const std::optional<std::uint64_t>& limit) { return limit ? format_byte_count(*limit) : "unlimited"; }

Finding open_files(const LimitFacts& limits) {
  if (!limits.open_files) return {Severity::Ok, "open files", "unlimited", ""};
  const std::string text = std::to_string(*limits.open_files);
  if (*limits.open_files >= enough_files) return {Severity::Ok, "open files", text, ""};
  return {Severity::Warning, "open files", text + ": the driver and NCCL open several for each pair of GPUs",
          "ulimit -n 65536"};
}

// The limit does not apply to memory that the CUDA driver pins. It applies to memory that InfiniBand registers.
Finding locked_memory(const LimitFacts& limits) {
  const bool enough = !limits.infiniband || !limits.locked_memory || *limits.locked_memory >= gibibyte;
  if (enough) return {Severity::Ok, "locked memory", bytes(limits.locked_memory), ""};
  return {Severity::Warning, "locked memory",
          bytes(limits.locked_memory) + ": NCCL cannot register its buffers with InfiniBand",
          "ulimit -l unlimited; for a container --ulimit memlock=-1"};
}

Finding address_space(const Facts& facts) {
  if (!facts.limits.address_space) return {Severity::Ok, "address space", "unlimited", ""};
  return {facts.gpus.empty() ? Severity::Warning : Severity::Wrong, "address space",
          bytes(facts.limits.address_space) +
              ": the driver and the memory pools reserve several times the memory of the GPUs",
          "ulimit -v unlimited"};
}

std::string cores_text(const LimitFacts& limits) {
  std::string text = std::to_string(limits.usable_cores) + " of " + std::to_string(limits.cores);
  if (limits.core_quota) {
    const auto tenths = static_cast<std::uint64_t>(*limits.core_quota * 10);
    text += ", CPU quota of " + std::to_string(tenths / 10) + "." + std::to_string(tenths % 10);
  }
  return text;
}

Finding cores(const Facts& facts) {
  const LimitFacts& limits = facts.limits;
  const std::string text = cores_text(limits);
  const auto usable = static_cast<double>(limits.usable_cores);
  const auto wanted = static_cast<double>(2 * facts.gpus.size());
  if (std::min(usable, limits.core_quota.value_or(usable)) >= wanted) return {Severity::Ok, "cores", text, ""};
  return {Severity::Warning, "cores",
          text + ": too few for the threads of " + std::to_string(facts.gpus.size()) + " GPUs",
          "give the process two cores for each GPU (cpuset, or the container's --cpus)"};
}

Finding shared_memory(const Facts& facts) {
  const auto& size = facts.limits.shared_memory;
  const std::string text = size ? format_byte_count(*size) : "not mounted";
  if (facts.gpus.size() < 2 || (size && *size >= gibibyte)) return {Severity::Ok, "/dev/shm", text, ""};
  return {Severity::Warning, "/dev/shm", text + ": too small for NCCL where GPUs have no direct access",
          "mount -o remount,size=8G /dev/shm; for a container --shm-size=8g"};
}

}  // namespace

void check_limits(const Facts& facts, Findings& findings) {
  findings.push_back(open_files(facts.limits));
  findings.push_back(locked_memory(facts.limits));
  findings.push_back(address_space(facts));
  findings.push_back(cores(facts));
  findings.push_back(shared_memory(facts));
  if (!facts.limits.huge_pages.empty())
    findings.push_back({Severity::Ok, "huge pages", "transparent: " + facts.limits.huge_pages, ""});
}

}  // namespace cox::tools
