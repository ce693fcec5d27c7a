#include <coxswain/device_handle/stream_id.hpp>

#include <atomic>

namespace cox {

StreamId StreamId::allocate() noexcept {
  static constinit std::atomic<std::uint64_t> next{1};
  return StreamId{next.fetch_add(1, std::memory_order_relaxed)};  // relaxed: only uniqueness matters
}

StreamId detail::first_stream_of_thread() noexcept {
  thread_stream() = {StreamId::allocate(), true};
  return thread_stream().id;
}

}  // namespace cox
