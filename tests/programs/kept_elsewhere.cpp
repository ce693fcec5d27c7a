// kept_elsewhere.hpp on host devices.

#include <coxswain/servers/host/server/host_server.hpp>
#include <coxswain/tests/programs/kept_elsewhere.hpp>

int main() {
  const std::uint16_t index = kept_elsewhere::run_number() == 1 ? 1 : 0;
  return kept_elsewhere::run(cox::HostClient::load({cox::host_device_type, index}));
}
