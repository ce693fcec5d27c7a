#include <coxswain/tools/cox/devices_command.hpp>

#include <coxswain/device_handle/base/shutdown.hpp>
#include <coxswain/servers/cuda/device/cuda_devices.hpp>
#include <coxswain/servers/cuda/peer/cuda_communication.hpp>
#include <coxswain/servers/host/server/host_server.hpp>
#include <coxswain/tools/cox/byte_text.hpp>
#include <coxswain/tools/cox/device_list.hpp>
#include <coxswain/tools/cox/device_unavailable.hpp>
#include <coxswain/tools/cox/output_file.hpp>

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
  Json json;  // fields that only this kind of device has
};

Row inspect_host(DeviceId device) {
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
Row inspect_cuda(DeviceId device) {
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

Row inspect(DeviceId device) {
  try {
#ifdef COX_HAS_CUDA
    if (device.type == cuda_device_type) return inspect_cuda(device);
#endif
    return inspect_host(device);
  } catch (const std::exception& error) {
    shutdown_all();
    throw DeviceUnavailable("device " + device_name(device) + " cannot be opened: " + error.what());
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
        << name << std::right << std::setw(12) << memory << "  " << details << "\n";
  };
  write("id", "kind", "name", "memory", "details");
  for (const Row& row : rows) write(row.id, row.kind, row.name, short_byte_count(row.memory), row.details);
}

// The routes of data between the GPUs among `devices`; empty for fewer than two GPUs.
std::vector<CudaRoute> routes_between(const std::vector<DeviceId>& devices) {
  std::vector<DeviceId> gpus;
  for (const DeviceId device : devices)
    if (device.type == cuda_device_type) gpus.push_back(device);
#ifdef COX_HAS_CUDA
  if (gpus.size() > 1) return explain_cuda_communication(gpus);
#endif
  return {};
}

void write_routes(const std::vector<CudaRoute>& ways, std::ostream& out) {
  out << "\n";
  if (ways.empty())
    out << "fewer than two GPUs; between host devices: copies and collectives in memory, by the device threads\n";
  for (const CudaRoute& way : ways) out << way.what << ": " << way.route << "\n    " << way.why << "\n";
}

Json routes_json(const std::vector<CudaRoute>& ways) {
  auto json = Json::array();
  for (const CudaRoute& way : ways) json.push_back({{"what", way.what}, {"way", way.route}, {"why", way.why}});
  return json;
}

Json devices_json(const std::vector<Row>& rows) {
  auto devices = Json::array();
  for (const Row& row : rows) {
    Json device{{"id", row.id}, {"kind", row.kind}, {"name", row.name}, {"memory_bytes", row.memory}};
    device.update(row.json);
    devices.push_back(std::move(device));
  }
  return devices;
}

}  // namespace

DevicesCommand::DevicesCommand(CLI::App& app)
    : command_(*app.add_subcommand("devices", "Show the devices and their properties")) {
  command_.add_option("--devices", devices_, "Show only these: host, host:COUNT, cuda, cuda:INDEX,INDEX");
  json_given_ =
      command_
          .add_option(
              "--json", json_,
              "Write JSON instead of the table; with a file name: write it to that file, in addition to the table")
          ->expected(0, 1);
  command_.add_flag("--explain", explain_, "Also show which route data takes between the devices, and why");
}

bool DevicesCommand::chosen() const { return command_.parsed(); }

ExitCode DevicesCommand::run(std::ostream& out, std::ostream& err) const {
  const bool to_file = !json_.empty() && json_ != standard_output;
  if (to_file) require_writable("--json", json_);
  const std::vector<DeviceId> devices = devices_.empty() ? all_devices() : parse_devices("--devices", devices_);
  std::vector<Row> rows;
  for (const DeviceId device : devices) rows.push_back(inspect(device));
  shutdown_all();
  const std::vector<CudaRoute> ways = explain_ ? routes_between(devices) : std::vector<CudaRoute>();
  bool delivered = true;
  if (json_given_->count() > 0) {
    const Json all = devices_json(rows);
    const std::string text = (explain_ ? Json{{"devices", all}, {"ways", routes_json(ways)}} : all).dump(2) + "\n";
    if (to_file)
      delivered = is_written(write_file(json_, text), "cox devices", "--json", json_, err);
    else
      out << text;
  }
  if (json_given_->count() == 0 || to_file) {
    write_table(rows, out);
    const std::string why = devices_.empty() ? cuda_unavailable_reason() : "";
    if (!why.empty()) out << why << "\n";
    if (explain_) write_routes(ways, out);
  }
  return delivered ? ExitCode::Ok : ExitCode::Violation;
}

}  // namespace cox::tools
