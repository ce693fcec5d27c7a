#include <coxswain/servers/host/server/host_options.hpp>

#include <coxswain/runtime/config/process_settings.hpp>

namespace cox {

HostOptions host_options(const Settings& settings) {
  return {.device_count = static_cast<std::uint16_t>(settings.get<std::uint64_t>("host.devices")),
          .threads_per_device = settings.get<std::uint64_t>("host.threads"),
          .memory_capacity = settings.get<std::uint64_t>("host.memory"),
          .pinned_capacity = settings.get<std::uint64_t>("host.pinned_memory")};
}

HostOptions host_options() { return host_options(settings()); }

void set_host_options(const HostOptions& options) {
  set_settings({{"host.devices", std::uint64_t{options.device_count}},
                {"host.threads", std::uint64_t{options.threads_per_device}},
                {"host.memory", std::uint64_t{options.memory_capacity}},
                {"host.pinned_memory", std::uint64_t{options.pinned_capacity}}});
}

void reset_host_options() { reset_settings({"host.devices", "host.threads", "host.memory", "host.pinned_memory"}); }

std::uint16_t host_device_count() { return host_options().device_count; }

void set_host_device_count(std::uint16_t count) { set_settings({{"host.devices", std::uint64_t{count}}}); }

}  // namespace cox
