#include <coxswain/device_handle/base/stream_id.hpp>

#include <atomic>

namespace cox {

StreamId StreamId::allocate(StreamPriority priority) noexcept {
  static constinit std::atomic<std::uint64_t> next{1};
  const std::uint64_t number = next.fetch_add(1, std::memory_order_relaxed);  // relaxed: only uniqueness matters
  return StreamId{number | std::uint64_t{priority == StreamPriority::High} << 63U};
}

StreamId detail::first_stream_of_thread() noexcept {
  thread_stream() = {StreamId::allocate(), true};
  return thread_stream().id;
}

}  // namespace cox
