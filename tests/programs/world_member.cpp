// A process of a world for the tests of cox run --processes: it adds the numbers of all processes. In the first run of
// a world with several, process 1 kills itself after that, and the others add until they are notified.

#include <coxswain/collectives/world/world.hpp>
#include <coxswain/device_handle/base/shutdown.hpp>
#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/servers/host/server/host_server.hpp>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <string>
#include <vector>

namespace {

constexpr cox::DeviceId own_device{cox::host_device_type, 0};

float sum(const cox::HostClient& client, const cox::CommunicationId& all, float number) {
  const cox::Handle value = client.create(cox::Bytes::from_vector(std::vector<float>{number}));
  const cox::Handle result = client.empty(sizeof(float));
  client.all_reduce(value, result, cox::ElementType::F32, all);
  return client.read_one(result).to_vector<float>()[0];
}

int work(const std::string& folder) {
  cox::World world = cox::World::join({own_device});
  const auto client = cox::HostClient::load(own_device);
  const cox::CommunicationId all(world.devices(cox::host_device_type));
  const auto number = static_cast<float>(world.process() + 1);
  const float expected = static_cast<float>(world.size() * (world.size() + 1)) / 2.0F;
  std::ofstream out;
  if (!folder.empty()) out.open(folder + "/" + std::to_string(world.process()), std::ios::app);
  if (sum(client, all, number) != expected) return 1;
  out << "sum" << std::endl;
  const char* const restart = std::getenv("COX_WORLD_RESTART");
  if (world.size() > 1 && restart != nullptr && std::string(restart) == "0") {
    if (world.process() == 1) std::raise(SIGKILL);
    try {
      for (;;) static_cast<void>(sum(client, all, number));
    } catch (...) {
      out << cox::describe(std::current_exception()) << std::endl;
      return 3;
    }
  }
  world.leave();
  return cox::shutdown_all() == cox::ShutdownOutcome::Drained ? 0 : 1;
}

}  // namespace

int main(int count, char** arguments) {
  try {
    return work(count > 1 ? arguments[1] : "");
  } catch (...) {
    std::fprintf(stderr, "%s\n", cox::describe(std::current_exception()).c_str());
    return 2;
  }
}
