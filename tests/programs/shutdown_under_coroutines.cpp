// expect-exit: 7
// The device is shut down under coroutines that loop over calls on a static thread pool. Each catches the refusal at
// its co_await and ends; none leaves through the pool's threads. Then the process exits while the pool still stands.

#include <coxswain/servers/host/server/host_server.hpp>

#include <unistd.h>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <atomic>

namespace {

namespace asio = boost::asio;

std::atomic<int> rounds{0};
std::atomic<int> refused{0};

asio::awaitable<void> call_until_closed(cox::HostClient client) {
  try {
    for (;;) {
      ++rounds;
      co_await client.device_handle().submit_async([](cox::HostServer&) {}, asio::use_awaitable);
      co_await client.sync(asio::use_awaitable);
    }
  } catch (const cox::CallError& error) {
    if (error.kind() == cox::CallError::Kind::Closed) ++refused;
  }
}

}  // namespace

int main() {
  alarm(60);
  constexpr int coroutines = 8;
  const cox::DeviceId device{.type = cox::host_device_type, .index = 0};
  static asio::thread_pool pool(2);
  for (int i = 0; i < coroutines; ++i)
    asio::co_spawn(pool, call_until_closed(cox::HostClient::load(device)), asio::detached);
  while (rounds < 1000) usleep(100);
  if (cox::shutdown(device) != cox::ShutdownOutcome::Drained) return 1;
  for (int i = 0; i < 100'000 && refused != coroutines; ++i) usleep(100);
  return refused == coroutines ? 7 : 2;
}
