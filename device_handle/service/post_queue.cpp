#include <coxswain/device_handle/service/post_queue.hpp>

#include <coxswain/device_handle/base/stream_id.hpp>
#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/device_handle/service/thread_context.hpp>

#include <chrono>
#include <cstddef>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

namespace cox {

void ThreadContext::dispatch_posts() noexcept {
  for (std::size_t i = 0; i < posts_.size(); ++i) {  // one queue may attach another while it is dispatched
    if (const std::shared_ptr<PostQueue> posts = posts_[i].lock()) dispatch_now(*posts);
  }
}

PostQueue::PostQueue(DeviceId device, std::function<void()> on_notify)
    : device_(device), on_notify_(std::move(on_notify)) {}

void PostQueue::attach(ThreadContext& thread) {
  std::erase_if(thread.posts_, [](const std::weak_ptr<PostQueue>& posts) { return posts.expired(); });
  thread.posts_.push_back(weak_from_this());
  keep_thread_ = thread.shared_from_this();
  thread_.store(&thread, std::memory_order_release);  // pairs with notify()
}

void PostQueue::notify() noexcept {
  ThreadContext* const thread = thread_.load(std::memory_order_acquire);  // pairs with attach()
  // Relaxed: after close() the service polls for calls itself, so notifications are not needed.
  if (thread == nullptr || closed_.load(std::memory_order_relaxed)) return;
  // Release: what the caller did is visible to the thread that handles the notification.
  if (notified_.exchange(true, std::memory_order_acq_rel)) return;
  constexpr int max_attempts = 1000;
  constexpr std::chrono::milliseconds interval{1};
  for (int attempt = 0; attempt < max_attempts; ++attempt) {
    try {
      return thread->queue_dispatch(shared_from_this());
    } catch (const CallError&) {  // closed: the service polls for calls itself
      break;
    } catch (...) {  // no memory: retry, since a lost notification would mean an endless wait
      std::this_thread::sleep_for(interval);
    }
  }
  notified_.store(false, std::memory_order_release);  // so that the next notification is delivered
}

void PostQueue::post(Call call) {
  {
    const std::lock_guard lock(mutex_);
    if (ended_) return;
    calls_.push_back(std::move(call));
    has_calls_.store(true, std::memory_order_relaxed);
  }
  if (suppressed_ != this) notify();
}

void PostQueue::post(std::shared_ptr<Posted> posted) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (ended_) return;
    Posted* const last = std::exchange(last_, posted.get());
    (last != nullptr ? last->next_ : first_) = std::move(posted);
    has_calls_.store(true, std::memory_order_relaxed);
  }
  if (suppressed_ != this) notify();
}

void PostQueue::post_coalesced() noexcept {
  // Release pairs with run_calls(): a thread that sees the flag also sees what was done before the post.
  coalesced_pending_.store(true, std::memory_order_release);
  has_calls_.store(true, std::memory_order_release);
  if (suppressed_ != this) notify();
}

bool PostQueue::run_calls() noexcept {
  bool any = false;
  const PostQueue* const outer = std::exchange(suppressed_, this);
  // Relaxed: a thread that posts a call notifies afterwards or checks has_calls_ itself, so no call is missed.
  while (has_calls_.load(std::memory_order_relaxed)) {
    std::vector<Call> taken = std::exchange(spare_, {});
    std::shared_ptr<Posted> posted;
    {
      const std::lock_guard lock(mutex_);
      taken.swap(calls_);
      posted.swap(first_);
      last_ = nullptr;
      has_calls_.exchange(false, std::memory_order_acquire);  // pairs with post_coalesced()
    }
    while (posted != nullptr) {
      const std::shared_ptr<Posted> next = std::move(posted->next_);  // it may be posted again while it runs
      posted->run_posted();
      posted = next;
    }
    for (Call& each : taken) call(each);
    taken.clear();
    spare_ = std::move(taken);
    if (coalesced_pending_.load(std::memory_order_relaxed) &&
        coalesced_pending_.exchange(false, std::memory_order_acquire))
      call(coalesced_);
    any = true;
  }
  suppressed_ = outer;
  return any;
}

bool PostQueue::dispatch() noexcept {
  if (!on_notify_) return true;
  run_calls();
  try {
    if (on_notify_) on_notify_();  // a call may have closed it
    return true;
  } catch (...) {
    report_task_error({device_, StreamId::current(), std::current_exception()});
    return false;
  }
}

void PostQueue::close() noexcept {
  closed_.store(true, std::memory_order_relaxed);
  on_notify_ = nullptr;
}

void PostQueue::end() noexcept {
  std::vector<Call> calls;
  std::shared_ptr<Posted> posted;
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    calls.swap(calls_);
    posted.swap(first_);
    last_ = nullptr;
  }
  while (posted != nullptr) posted = std::exchange(posted->next_, nullptr);  // one by one: no recursion
}

void PostQueue::call(Call& function) const noexcept {
  try {
    function();
  } catch (...) {
    report_task_error({device_, StreamId::current(), std::current_exception()});
  }
}

PostQueue::HoldNotify::HoldNotify(PostQueue& posts) noexcept
    : posts_(posts), outer_(std::exchange(suppressed_, &posts)) {}

PostQueue::HoldNotify::~HoldNotify() {
  suppressed_ = outer_;
  if (posts_.has_calls_.load(std::memory_order_relaxed)) posts_.notify();
}

Outcome PostQueue::DispatchPosts::operator()() const noexcept {
  // Cleared before the calls are run: a thread that posts from here on notifies again. Acquire pairs with the release
  // in notify().
  posts->notified_.exchange(false, std::memory_order_acq_rel);
  return posts->dispatch() ? Outcome::Completed : Outcome::Failed;
}

}  // namespace cox
