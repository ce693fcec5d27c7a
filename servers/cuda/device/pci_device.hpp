#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace cox::detail {

/// Converts the driver's spelling "0000:3B:00.0" to that of the system: "0000:3b:00.0".
[[nodiscard]] std::string pci_address(std::string_view bus_id);

/// The NUMA node of the device; std::nullopt if the system does not report it. `address`: from pci_address().
/// `devices`: the folder in which the system lists all PCI devices.
[[nodiscard]] std::optional<int> numa_node_of(const std::string& address,
                                              const std::string& devices = "/sys/bus/pci/devices");

}  // namespace cox::detail
