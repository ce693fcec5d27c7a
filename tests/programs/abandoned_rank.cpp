// L16: a device whose shutdown ends as Abandoned leaves its communicators: ranks that wait for it, and ranks that call
// later, get CollectiveError Aborted at once, and the device can be opened again.

#include <coxswain/device_handle/base/find_cause.hpp>
#include <coxswain/device_handle/base/shutdown.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>
#include <coxswain/runtime/config/process_settings.hpp>
#include <coxswain/servers/host/server/host_server.hpp>

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <future>
#include <string_view>
#include <utility>
#include <vector>

using namespace cox;
using namespace std::chrono_literals;

namespace {

constexpr DeviceId first{.type = host_device_type, .index = 0};
constexpr DeviceId second{.type = host_device_type, .index = 1};
const std::vector<float> ones(100, 1.0F);

void require(bool holds, const char* what) {
  if (holds) return;
  std::printf("not so: %s\n", what);
  std::fflush(stdout);
  _exit(1);
}

// Whether `call` fails since the other device was shut down, within ten seconds.
template <class F>
bool is_told(F&& call) {
  const auto begin = std::chrono::steady_clock::now();
  try {
    call();
  } catch (...) {
    const auto error = std::current_exception();
    const auto* const cause = find_cause<CollectiveError>(error, CollectiveError::Kind::Aborted);
    return cause != nullptr && std::string_view(cause->what()).find("host:1 was shut down") != std::string_view::npos &&
           std::chrono::steady_clock::now() - begin < 10s;
  }
  return false;
}

}  // namespace

int main() {
  alarm(120);
  set_settings({{"collectives.timeout", std::chrono::nanoseconds(60s)}});
  const auto client = HostClient::load(first);
  std::promise<void> release;
  HostClient::load(second).device_handle().submit(
      [released = release.get_future().share()](HostServer&) { released.wait(); });
  const Handle memory = client.create(Bytes::copy_of(ones));
  client.all_reduce(memory, memory, ElementType::F32, {first, second});
  require(shutdown(second, 50ms) == ShutdownOutcome::Abandoned, "the shutdown abandons the device");
  require(is_told([&] { static_cast<void>(client.read_one(memory)); }), "the rank that waits is told");
  require(is_told([&] { client.all_reduce(memory, memory, ElementType::F32, {first, second}); }),
          "a rank that comes is told");
  const auto again = HostClient::load(second);
  const Handle mine = client.create(Bytes::copy_of(ones));
  const Handle its = again.create(Bytes::copy_of(ones));
  client.all_reduce(mine, mine, ElementType::F32, {first, second});
  again.all_reduce(its, its, ElementType::F32, {first, second});
  release.set_value();
  for (const auto& [rank, handle] : {std::pair(&client, &mine), std::pair(&again, &its)})
    require(rank->read_one(*handle).to_vector<float>() == std::vector<float>(100, 2.0F), "they sum again");
  require(shutdown_all() == ShutdownOutcome::Drained, "both are shut down");
  std::fflush(stdout);
  _exit(0);  // what an abandoned device has is not given back: no leak of the program's
}
