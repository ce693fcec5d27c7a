#include <coxswain/servers/host/detail/host_threads.hpp>

#include <coxswain/runtime/detail/thread_name.hpp>

namespace cox::detail {

HostThreads::HostThreads(const std::string& name, std::size_t count)
    : context_(static_cast<int>(count)), work_(context_.get_executor()) {
  try {
    threads_.reserve(count);
    for (std::size_t i = 0; i < count; ++i)
      threads_.emplace_back([this, name] {
        name_this_thread(name);
        context_.run();
      });
  } catch (...) {
    join();
    throw;
  }
}

HostThreads::~HostThreads() { join(); }

void HostThreads::join() noexcept {
  work_.reset();
  for (std::thread& thread : threads_) thread.join();
}

}  // namespace cox::detail
