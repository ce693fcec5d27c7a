#include <coxswain/tools/cox/doctor/nccl_versions.hpp>

#include <array>
#include <cstdint>

namespace cox::tools {
namespace {

enum class Where : std::uint8_t { Everywhere, OnArm };

struct BadVersions {
  int first;
  int last;
  Where where;
  std::string_view reason;
};

// The last two entries are from NVIDIA's release notes.
constexpr std::array bad_versions{
    BadVersions{0, 21402, Where::Everywhere, "too old: Coxswain needs 2.14.3 or newer"},
    BadVersions{
        21801, 21802, Where::Everywhere,
        "over several nodes, data can be corrupted: by the LL128 protocol where a network card shares a PCI switch "
        "with one GPU only (HGX H100), and by IB SHARP with several GPUs in a process; fixed in 2.18.3"},
    BadVersions{0, 22902, Where::OnArm,
                "on ARM, if compiled with a gcc older than 10, it can hang forever; fixed in 2.29.3"},
};

}  // namespace

std::string_view known_issue(int nccl_version, bool arm) noexcept {
  for (const BadVersions& bad : bad_versions) {
    const bool here = bad.where == Where::Everywhere || arm;
    if (here && nccl_version >= bad.first && nccl_version <= bad.last) return bad.reason;
  }
  return {};
}

}  // namespace cox::tools
