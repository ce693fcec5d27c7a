#include <coxswain/runtime/communication/world_process.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <mutex>
#include <string_view>
#include <utility>

namespace cox {
namespace {

constinit std::atomic<std::uint16_t> own{0};

struct Hosts {
  // Never destroyed: threads of the library may use it until the process ends.
  static Hosts& of_process() {
    static Hosts& hosts = *new Hosts;
    return hosts;
  }
  std::mutex mutex;
  std::vector<std::string> names;  // by number of the process
};

}  // namespace

std::uint16_t own_process() noexcept { return own.load(std::memory_order_acquire); }

bool are_on_one_host(std::span<const DeviceId> devices) {
  Hosts& hosts = Hosts::of_process();
  const std::lock_guard lock(hosts.mutex);
  const auto host_of = [&](DeviceId device) -> std::string_view {
    const std::size_t process = detail::world_name(device, own_process()).process;  // from 1; 0: of no world
    return process == 0 || process > hosts.names.size() ? std::string_view() : hosts.names[process - 1];
  };
  return std::ranges::all_of(devices, [&](DeviceId device) { return host_of(device) == host_of(devices.front()); });
}

void detail::set_own_process(std::uint16_t process) noexcept { own.store(process, std::memory_order_release); }

void detail::set_hosts(std::vector<std::string> hosts) {
  const std::lock_guard lock(Hosts::of_process().mutex);
  Hosts::of_process().names = std::move(hosts);
}

}  // namespace cox
