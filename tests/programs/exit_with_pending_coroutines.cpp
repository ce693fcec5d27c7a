// expect-exit: 7
// Coroutines that loop over calls wait on a thread pool and on an io_context when main returns: the pool and the
// context are destroyed while their calls are queued or run, then the devices are shut down. A clean exit with that
// code.

#include <coxswain/servers/host/server/host_server.hpp>

#include <unistd.h>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <atomic>
#include <latch>

namespace {

namespace asio = boost::asio;

std::atomic<int> rounds{0};
std::latch destroyed{1};  // the pool and the context have been

struct AtEnd {
  ~AtEnd() { destroyed.count_down(); }
};

asio::awaitable<void> call_for_ever(cox::HostClient client) {
  for (;;) {
    ++rounds;
    co_await client.device_handle().submit_async([](cox::HostServer&) { return 1; }, asio::use_awaitable);
    co_await client.sync(asio::use_awaitable);
  }
}

}  // namespace

int main() {
  alarm(60);
  const auto client = cox::HostClient::load({.type = cox::host_device_type, .index = 0});
  const AtEnd after_pool_and_context;
  asio::thread_pool pool(2);
  asio::io_context context;
  for (int i = 0; i < 8; ++i) asio::co_spawn(pool, call_for_ever(client), asio::detached);
  for (int i = 0; i < 8; ++i) asio::co_spawn(context, call_for_ever(client), asio::detached);
  while (context.poll_one() == 0 || rounds < 1000) {
  }
  // What is called now completes after the pool and the context have been destroyed.
  client.device_handle().submit([](cox::HostServer&) { destroyed.wait(); });
  for (int i = 0; i < 100; ++i) context.poll_one();
  return 7;
}
