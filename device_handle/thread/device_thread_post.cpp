// The part of DeviceThread that a post rarely needs: the thread's first post, a full queue, a refusal.

#include <coxswain/device_handle/base/exceed_capacity.hpp>
#include <coxswain/device_handle/service/call.hpp>
#include <coxswain/device_handle/thread/device_thread.hpp>

#include <algorithm>

namespace cox {
namespace {

using Clock = std::chrono::steady_clock;

// A stop request cannot end a futex wait, so it is checked.
constexpr std::chrono::milliseconds stop_check_interval{1};

}  // namespace

DeviceThread::Reservation DeviceThread::begin_slow(const TaskOps& ops, const PostOptions& options) {
  WhenFull when_full = options.when_full;
  if (when_full == WhenFull::Block && (HeldNode::any_held() || detail::ExceedCapacity::active()))
    when_full = WhenFull::Overcommit;
  const bool limited =
      options.call != nullptr && when_full == WhenFull::Block && options_.queue_policy == QueuePolicy::Block;
  return detail::at_site(options.site, [&]() -> Reservation {
    for (;;) {
      Mailbox::Lane& lane = ClientLanes::find_or_acquire(serial_, {shared_from_this(), &mailbox_});
      const auto [result, object] = mailbox_.begin(lane, ops, limited ? WhenFull::Fail : when_full);
      if (object != nullptr) return {lane, object};
      if (!limited || result != PushResult::Full) throw_refused(result);
      wait_for_space(*options.call);
    }
  });
}

void DeviceThread::wait_for_space(const CallOptions& options) {
  if (const auto kind = detail::find_refusal(options))
    std::rethrow_exception(detail::call_error(*kind, device_, &options));
  auto until = options.deadline.value_or(Clock::time_point::max());
  if (options.stop.stop_possible()) until = std::min(until, Clock::now() + stop_check_interval);
  mailbox_.wait_for_space(until);
}

void DeviceThread::throw_refused(PushResult result) const {
  const std::string where = device_.to_string() + " " + to_string(stage_);
  switch (result) {
    case PushResult::Forked:
      throw CallError(
          CallError::Kind::Forked,
          "call refused: forked: this process is a forked child, the threads of " + where + " stayed with its parent",
          std::source_location());
    case PushResult::Full:
      throw CallError(CallError::Kind::QueueFull,
                      "call refused: queue_full: " + where + " has " + std::to_string(options_.queue_capacity) +
                          " closures queued, its capacity",
                      std::source_location());
    default:
      throw CallError(CallError::Kind::Closed, "call refused: closed: " + where + " is shut down or being shut down",
                      std::source_location());
  }
}

}  // namespace cox
