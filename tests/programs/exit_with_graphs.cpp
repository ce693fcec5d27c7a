// expect-exit: 0
// Captured graphs in static objects: dropped after main, whatever is left of their device.

#include <coxswain/device_handle/handle/device_handle.hpp>
#include <coxswain/runtime/client/graph.hpp>
#include <coxswain/runtime/communication/pending_collectives.hpp>

#include <optional>
#include <thread>

namespace {

struct Server {
  explicit Server(cox::DeviceId) {}
  void replay(cox::GraphId, cox::MembershipEpoch, const cox::Caller&) {}
  void graph_destroy(cox::GraphId, const cox::Caller&) {}
};

struct Client {
  cox::DeviceHandle<Server> device = cox::DeviceHandle<Server>::get({.type = 5, .index = 0});

  [[nodiscard]] const cox::DeviceHandle<Server>& device_handle() const noexcept { return device; }
  [[nodiscard]] static cox::StreamId stream_id() noexcept { return cox::StreamId::current(); }
  [[nodiscard]] cox::PendingCollectives::Call pending_collective() const {
    return cox::PendingCollectives::Call(cox::PendingCollectives::for_device(device.device_id()));
  }
};

std::optional<cox::Graph<Client>> before_main(cox::Graph<Client>(Client(), cox::GraphId{1}));
std::optional<cox::Graph<Client>> in_main;
thread_local std::optional<cox::Graph<Client>> of_thread;

}  // namespace

int main() {
  in_main = cox::Graph<Client>(Client(), cox::GraphId{2});
  of_thread = in_main;
  std::thread([] { of_thread = cox::Graph<Client>(Client(), cox::GraphId{3}); }).join();
  in_main->replay();
  before_main->replay();
  return 0;
}
