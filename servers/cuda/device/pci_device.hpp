#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace cox::detail {

/// The driver's "0000:3B:00.0" as the system spells it: "0000:3b:00.0".
[[nodiscard]] std::string pci_address(std::string_view bus_id);

/// The NUMA node that the system has the device on; none if it does not know. `address` is of pci_address; `devices` is
/// the folder of all.
[[nodiscard]] std::optional<int> numa_node_of(const std::string& address,
                                              const std::string& devices = "/sys/bus/pci/devices");

}  // namespace cox::detail
