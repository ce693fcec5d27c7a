// L2: a completion handler that has no executor is called although the system has no threads left by then.

#include <coxswain/servers/host/server/host_server.hpp>
#include <coxswain/tests/support/refused_threads.hpp>

#include <unistd.h>

#include <cstdio>
#include <exception>
#include <future>

#ifdef __SANITIZE_ADDRESS__
// LeakSanitizer would start a thread at exit.
extern "C" int __lsan_is_turned_off() { return 1; }
#endif

int main() {
  alarm(60);
  const auto client = cox::HostClient::load({.type = cox::host_device_type, .index = 0});
  client.sync().get();
  if (!cox::test::refuse_threads(cox::test::RefusedThreads::OfProcess)) {
    std::puts("seccomp is not there: nothing to refuse threads with");
    return 0;
  }
  std::promise<void> release;
  client.device_handle().submit([released = release.get_future().share()](cox::HostServer&) { released.wait(); });
  std::promise<bool> called;
  client.sync([&](const std::exception_ptr& error) { called.set_value(error == nullptr); });
  release.set_value();
  if (!called.get_future().get()) return 1;
  client.sync().get();
  return 0;
}
