#include <coxswain/tools/cox/devices_command.hpp>

#include <coxswain/device_handle/shutdown.hpp>
#include <coxswain/runtime/byte_count.hpp>
#include <coxswain/servers/host/host_server.hpp>
#include <coxswain/tools/cox/device_list.hpp>
#include <coxswain/tools/cox/device_unavailable.hpp>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <iomanip>
#include <vector>

namespace cox::tools {
namespace {

struct Row {
  std::string id;
  std::string kind;
  std::string name;
  std::size_t memory = 0;  // bytes
  std::size_t threads = 0;
};

Row look_at(DeviceId device) {
  try {
    const HostClient client = HostClient::load(device);
    return {.id = device_name(device),
            .kind = "host",
            .name = client.properties().name,
            .memory = client.properties().memory.capacity,
            .threads = client.info().threads};
  } catch (const std::exception& error) {
    shutdown_all();
    throw DeviceUnavailable("device " + device_name(device) + " cannot be had: " + error.what());
  }
}

void write_table(const std::vector<Row>& rows, std::ostream& out) {
  std::size_t name_width = 4;
  for (const Row& row : rows) name_width = std::max(name_width, row.name.size());
  const auto write = [&](const std::string& id, const std::string& kind, const std::string& name,
                         const std::string& memory, const std::string& threads) {
    out << std::left << std::setw(10) << id << std::setw(6) << kind << std::setw(static_cast<int>(name_width) + 2)
        << name << std::right << std::setw(24) << memory << std::setw(9) << threads << "\n";
  };
  write("id", "kind", "name", "memory", "threads");
  for (const Row& row : rows)
    write(row.id, row.kind, row.name, format_byte_count(row.memory), std::to_string(row.threads));
}

void write_json(const std::vector<Row>& rows, std::ostream& out) {
  auto devices = nlohmann::ordered_json::array();
  for (const Row& row : rows)
    devices.push_back({{"id", row.id},
                       {"kind", row.kind},
                       {"name", row.name},
                       {"memory_bytes", row.memory},
                       {"threads", row.threads}});
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
  for (const DeviceId device : parse_devices("--devices", devices_.empty() ? "host" : devices_))
    rows.push_back(look_at(device));
  shutdown_all();
  if (json_) {
    write_json(rows, out);
  } else {
    write_table(rows, out);
    if (devices_.empty()) out << why_no_cuda() << "\n";
  }
  return ExitCode::Ok;
}

}  // namespace cox::tools
