// kept_worker.hpp on two host devices. Faults: kill.
#include <coxswain/servers/host/server/host_server.hpp>
#include <coxswain/tests/programs/kept_worker.hpp>

int main(int argc, char** argv) {
  cox::set_host_device_count(2);
  kept_worker::Devices<cox::HostClient> devices{
      .clients = {},
      .elements = 1 << 15,
      .fill =
          [](const cox::HostClient& client, const cox::Handle& memory, std::uint64_t value) {
            const std::size_t count = memory.size_in_used() / sizeof(value);
            client.call(cox::KernelArguments().with_buffer(memory, cox::Access::Overwrite),
                        [value, count](std::span<void* const> pointers) {
                          auto* const data = static_cast<volatile std::uint64_t*>(pointers[0]);
                          for (std::size_t i = 0; i < count; ++i) data[i] = value;
                        });
          },
      .end_soon =
          [](const std::string&, const char* file) {
            std::thread([file] {
              kept_worker::wait_at_random(std::chrono::milliseconds(20));
              kept_worker::note(file, "fault " + kept_worker::now_in_ms());
              std::raise(SIGKILL);
            }).detach();
          }};
  for (std::uint16_t i = 0; i < 2; ++i) devices.clients.push_back(cox::HostClient::load({cox::host_device_type, i}));
  return kept_worker::run_all(devices, argc, argv);
}
