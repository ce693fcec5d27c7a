// expect-exit: 0
// The process ends while collectives are under way: some have all their ranks, one misses a rank that will not come,
// and one a rank of a device that was never opened.

#include <coxswain/servers/host/server/host_server.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

int main() {
  constexpr std::size_t bytes = std::size_t{4} << 20U;
  std::vector<cox::DeviceId> devices;
  for (std::uint16_t index = 0; index < 4; ++index) devices.push_back({.type = cox::host_device_type, .index = index});
  std::vector<cox::HostClient> clients;
  for (std::size_t rank = 0; rank < 3; ++rank) clients.push_back(cox::HostClient::load(devices[rank]));

  const cox::CommunicationId open{devices[0], devices[1], devices[2]};
  std::vector<cox::Handle> memory;
  for (const cox::HostClient& client : clients) memory.push_back(client.create(cox::Bytes::zeroed(bytes)));
  for (int round = 0; round < 20; ++round)
    for (std::size_t rank = 0; rank < 3; ++rank)
      clients[rank].all_reduce(memory[rank], memory[rank], cox::ElementType::F32, open);
  clients[0].all_reduce(memory[0], memory[0], cox::ElementType::F32, {devices[0], devices[1]});
  clients[1].all_reduce(memory[1], memory[1], cox::ElementType::F32, devices);
  return 0;
}
