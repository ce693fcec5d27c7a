#include <coxswain/tools/cox/devices_command.hpp>

#include <coxswain/device_handle/shutdown.hpp>
#include <coxswain/runtime/byte_count.hpp>
#include <coxswain/servers/cuda/cuda_devices.hpp>
#include <coxswain/servers/host/host_server.hpp>
#include <coxswain/tools/cox/device_list.hpp>
#include <coxswain/tools/cox/device_unavailable.hpp>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <iomanip>
#include <utility>
#include <vector>

namespace cox::tools {
namespace {

using Json = nlohmann::ordered_json;

struct Row {
  std::string id;
  std::string kind;
  std::string name;
  std::size_t memory = 0;  // bytes
  std::string details;
  Json json;  // those that only this kind has
};

Row look_at_host(DeviceId device) {
  const HostClient client = HostClient::load(device);
  const std::size_t threads = client.info().threads;
  return {.id = device_name(device),
          .kind = "host",
          .name = client.properties().name,
          .memory = client.properties().memory.capacity,
          .details = std::to_string(threads) + " threads",
          .json = {{"threads", threads}}};
}

#ifdef COX_HAS_CUDA
Row look_at_cuda(DeviceId device) {
  const CudaDeviceFacts facts = describe_cuda_device(device);
  const std::string capability = std::to_string(facts.compute_major) + "." + std::to_string(facts.compute_minor);
  Row row{.id = device_name(device),
          .kind = "cuda",
          .name = facts.name,
          .memory = facts.memory,
          .details = std::to_string(facts.multiprocessors) + " multiprocessors, compute capability " + capability +
                     ", " + facts.bus_id,
          .json = {{"multiprocessors", facts.multiprocessors},
                   {"compute_capability", capability},
                   {"bus_id", facts.bus_id},
                   {"numa_node", Json()}}};
  if (facts.numa_node) {
    row.details += ", NUMA node " + std::to_string(*facts.numa_node);
    row.json["numa_node"] = *facts.numa_node;
  }
  return row;
}
#endif

Row look_at(DeviceId device) {
  try {
#ifdef COX_HAS_CUDA
    if (device.type == cuda_device_type) return look_at_cuda(device);
#endif
    return look_at_host(device);
  } catch (const std::exception& error) {
    shutdown_all();
    throw DeviceUnavailable("device " + device_name(device) + " cannot be had: " + error.what());
  }
}

std::vector<DeviceId> all_devices() {
  std::vector<DeviceId> devices = parse_devices("--devices", "host");
  const std::vector<DeviceId> cuda = cuda_devices();
  devices.insert(devices.end(), cuda.begin(), cuda.end());
  return devices;
}

void write_table(const std::vector<Row>& rows, std::ostream& out) {
  std::size_t name_width = 4;
  for (const Row& row : rows) name_width = std::max(name_width, row.name.size());
  const auto write = [&](const std::string& id, const std::string& kind, const std::string& name,
                         const std::string& memory, const std::string& details) {
    out << std::left << std::setw(10) << id << std::setw(6) << kind << std::setw(static_cast<int>(name_width) + 2)
        << name << std::right << std::setw(24) << memory << "  " << details << "\n";
  };
  write("id", "kind", "name", "memory", "details");
  for (const Row& row : rows) write(row.id, row.kind, row.name, format_byte_count(row.memory), row.details);
}

void write_json(const std::vector<Row>& rows, std::ostream& out) {
  auto devices = Json::array();
  for (const Row& row : rows) {
    Json device{{"id", row.id}, {"kind", row.kind}, {"name", row.name}, {"memory_bytes", row.memory}};
    device.update(row.json);
    devices.push_back(std::move(device));
  }
  out << devices.dump(2) << "\n";
}

}  // namespace

DevicesCommand::DevicesCommand(CLI::App& app) : command_(*app.add_subcommand("devices", "Show the devices")) {
  command_.add_option("--devices", devices_, "Only these: host, host:COUNT, cuda, cuda:INDEX,INDEX");
  command_.add_flag("--json", json_, "As JSON");
}

bool DevicesCommand::chosen() const { return command_.parsed(); }

ExitCode DevicesCommand::run(std::ostream& out) const {
  std::vector<Row> rows;
  for (const DeviceId device : devices_.empty() ? all_devices() : parse_devices("--devices", devices_))
    rows.push_back(look_at(device));
  shutdown_all();
  if (json_) {
    write_json(rows, out);
  } else {
    write_table(rows, out);
    const std::string why = devices_.empty() ? why_no_cuda_devices() : "";
    if (!why.empty()) out << why << "\n";
  }
  return ExitCode::Ok;
}

}  // namespace cox::tools
