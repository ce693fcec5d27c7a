#include <coxswain/servers/cuda/device/pci_device.hpp>

#include <fstream>

namespace cox::detail {

std::string pci_address(std::string_view bus_id) {
  std::string address(bus_id);
  for (char& c : address) {
    if (c >= 'A' && c <= 'F') c = static_cast<char>(c - 'A' + 'a');
  }
  return address;
}

std::optional<int> numa_node_of(const std::string& address, const std::string& devices) {
  std::ifstream file(devices + "/" + address + "/numa_node");
  int node = -1;
  if (!(file >> node) || node < 0) return std::nullopt;
  return node;
}

}  // namespace cox::detail
