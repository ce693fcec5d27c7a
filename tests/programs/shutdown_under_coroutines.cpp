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
#include <latch>

namespace {

namespace asio = boost::asio;

constexpr int coroutines = 8;
constexpr int first_rounds = 1000;

std::atomic<int> rounds{0};
std::atomic<int> refused{0};
std::latch begun{1};           // that many rounds have been made
std::latch ended{coroutines};  // by each coroutine that was refused

asio::awaitable<void> call_until_closed(cox::HostClient client) {
  try {
    for (;;) {
      if (++rounds == first_rounds) begun.count_down();
      co_await client.device_handle().submit_async([](cox::HostServer&) {}, asio::use_awaitable);
      co_await client.sync(asio::use_awaitable);
    }
  } catch (const cox::CallError& error) {
    if (error.kind() == cox::CallError::Kind::Closed) ++refused;
    ended.count_down();
  }
}

}  // namespace

int main() {
  alarm(60);
  const cox::DeviceId device{.type = cox::host_device_type, .index = 0};
  static asio::thread_pool pool(2);
  for (int i = 0; i < coroutines; ++i)
    asio::co_spawn(pool, call_until_closed(cox::HostClient::load(device)), asio::detached);
  begun.wait();
  if (cox::shutdown(device) != cox::ShutdownOutcome::Drained) return 1;
  ended.wait();
  return refused == coroutines ? 7 : 2;
}
