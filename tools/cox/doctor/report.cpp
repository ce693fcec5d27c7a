#include <coxswain/tools/cox/doctor/report.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <iomanip>

namespace cox::tools {
namespace {

using Json = nlohmann::ordered_json;
using Severity = Finding::Severity;

constexpr int severity_width = 9;

std::ptrdiff_t count(const Findings& findings, Severity severity) {
  return std::ranges::count(findings, severity, &Finding::severity);
}

int subject_width(const Findings& findings) {
  std::size_t width = 0;
  for (const Finding& finding : findings) width = std::max(width, finding.subject.size());
  return static_cast<int>(width) + 2;
}

// "-" on the diagonal, "no" without direct access, else "yes/" and the rank of the link.
std::string cell(const Facts& facts, std::size_t from, std::size_t to) {
  const CudaPeerFacts& peer = facts.peers[from][to];
  if (from == to) return "-";
  return peer.access ? "yes/" + std::to_string(peer.rank) : "no";
}

void write_peers(const Facts& facts, std::ostream& out) {
  constexpr int width = 9;
  const auto name = [](std::size_t i) { return "cuda:" + std::to_string(i); };
  out << "\npeers: direct access / rank of the link (0 is the fastest)\n" << std::left << std::setw(width) << "";
  for (std::size_t to = 0; to < facts.peers.size(); ++to) out << std::setw(width) << name(to);
  out << "\n";
  for (std::size_t from = 0; from < facts.peers.size(); ++from) {
    out << std::setw(width) << name(from);
    for (std::size_t to = 0; to < facts.peers.size(); ++to) out << std::setw(width) << cell(facts, from, to);
    out << "\n";
  }
}

Json gpu_json(const CudaDeviceFacts& gpu) {
  Json json{{"name", gpu.name},
            {"memory_bytes", gpu.memory},
            {"bus_id", gpu.bus_id},
            {"compute_capability", std::to_string(gpu.compute_major) + "." + std::to_string(gpu.compute_minor)},
            {"multiprocessors", gpu.multiprocessors},
            {"ecc", gpu.ecc}};
  json["numa_node"] = gpu.numa_node ? Json(*gpu.numa_node) : Json();
  return json;
}

Json peers_json(const Facts& facts) {
  Json rows = Json::array();
  for (std::size_t from = 0; from < facts.peers.size(); ++from) {
    Json row = Json::array();
    for (std::size_t to = 0; to < facts.peers[from].size(); ++to) {
      const CudaPeerFacts& peer = facts.peers[from][to];
      row.push_back(from == to ? Json() : Json{{"access", peer.access}, {"rank", peer.rank}});
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace

bool all_passed(const Findings& findings) noexcept { return count(findings, Severity::Wrong) == 0; }

void write_doctor_table(const Facts& facts, const Findings& findings, std::ostream& out) {
  const int width = subject_width(findings);
  for (const Finding& finding : findings) {
    out << std::left << std::setw(severity_width) << to_string(finding.severity) << std::setw(width) << finding.subject
        << finding.text << "\n";
    if (!finding.fix.empty()) out << std::setw(severity_width + width) << "" << "fix: " << finding.fix << "\n";
  }
  if (facts.peers.size() > 1) write_peers(facts, out);
  out << "\n" << count(findings, Severity::Wrong) << " wrong, " << count(findings, Severity::Warning) << " warnings\n";
}

std::string doctor_json(const Facts& facts, const Findings& findings) {
  Json list = Json::array();
  for (const Finding& finding : findings)
    list.push_back({{"severity", std::string(to_string(finding.severity))},
                    {"subject", finding.subject},
                    {"text", finding.text},
                    {"fix", finding.fix}});
  Json gpus = Json::array();
  for (const CudaDeviceFacts& gpu : facts.gpus) gpus.push_back(gpu_json(gpu));
  const Json json{{"ok", all_passed(findings)}, {"findings", list}, {"gpus", gpus}, {"peers", peers_json(facts)}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace cox::tools
