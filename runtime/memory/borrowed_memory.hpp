#pragma once

#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/device_handle/base/unique_function.hpp>
#include <coxswain/device_handle/service/post_queue.hpp>
#include <coxswain/runtime/base/location.hpp>

#include <cstddef>
#include <exception>
#include <memory>
#include <utility>

namespace cox {

/// Memory that ComputeClient::borrow was given: its owner's callback, which is called once, when the device no longer
/// uses the memory. Device thread only, unless said otherwise.
class BorrowedMemory final : public PostQueue::Posted {
 public:
  using Release = UniqueFunction<void()>;
  /// Bytes of which the address must be a multiple: vector loads of kernels, and the copies of collectives, take 16.
  static constexpr std::size_t alignment = 16;

  /// `release` may be empty. Any thread.
  BorrowedMemory(Location location, Release release) noexcept : location_(location), release_(std::move(release)) {}
  BorrowedMemory(const BorrowedMemory&) = delete;
  BorrowedMemory& operator=(const BorrowedMemory&) = delete;
  /// The device has never taken the memory, or uses it no longer. Any thread.
  ~BorrowedMemory() { release(); }

  /// The device takes the memory. `posts` is notified when the last handle has been dropped.
  void take(std::shared_ptr<PostQueue> posts) noexcept { posts_ = std::move(posts); }
  /// Precondition: take(). Any thread.
  [[nodiscard]] const std::shared_ptr<PostQueue>& posts() const noexcept { return posts_; }
  [[nodiscard]] bool is_released() const noexcept { return is_released_; }
  /// Calls the callback, the first time. What it throws becomes a TaskError of the stream that borrowed the memory.
  void release() noexcept {
    if (std::exchange(is_released_, true) || !release_) return;
    try {
      std::exchange(release_, {})();
    } catch (...) {
      report_task_error({location_.device, location_.stream, std::current_exception()});
    }
  }
  /// The memory was refused: its owner still has it, and the callback is not called.
  void cancel() noexcept { is_released_ = true; }

 private:
  void run_posted() noexcept override { release(); }

  const Location location_;
  Release release_;
  std::shared_ptr<PostQueue> posts_;
  bool is_released_ = false;
};

}  // namespace cox
