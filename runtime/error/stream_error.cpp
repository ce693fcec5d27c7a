#include <coxswain/runtime/error/stream_error.hpp>

#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/runtime/error/log.hpp>

#include <atomic>
#include <memory>
#include <mutex>
#include <utility>

namespace cox {
namespace {

using Callback = std::function<void(const StreamError&)>;

constinit std::atomic<std::uint64_t> count{0};

struct Slot {
  std::mutex mutex;
  std::shared_ptr<const Callback> callback;
};

Slot& slot() {
  static auto& slot = *new Slot;  // never destroyed: streams may outlive static destructors
  return slot;
}

}  // namespace

void set_stream_error_callback(Callback callback) {
  auto next = callback ? std::make_shared<const Callback>(std::move(callback)) : nullptr;
  const std::scoped_lock lock(slot().mutex);
  slot().callback.swap(next);
}

std::uint64_t stream_error_count() noexcept { return count.load(std::memory_order_relaxed); }

void report_stream_error(LogSubsystem subsystem, const StreamError& error) noexcept {
  count.fetch_add(1, std::memory_order_relaxed);
  try {
    log::write(subsystem, LogLevel::Warn, [&] { return error.location.to_string() + ": " + describe(error.error); });
    std::shared_ptr<const Callback> callback;
    {
      const std::scoped_lock lock(slot().mutex);
      callback = slot().callback;
    }
    if (callback != nullptr) (*callback)(error);
  } catch (...) {
    report_task_error({error.location.device, error.location.stream, std::current_exception()});
  }
}

}  // namespace cox
