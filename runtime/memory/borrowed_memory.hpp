#pragma once

#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/device_handle/base/unique_function.hpp>
#include <coxswain/device_handle/service/post_queue.hpp>
#include <coxswain/runtime/base/location.hpp>

#include <cstddef>
#include <exception>
#include <memory>
#include <source_location>
#include <string>
#include <utility>

namespace cox {

/// Whether the memory of a kept set may be written on one device: only between begin_update and commit. Device thread
/// only.
struct UpdateGuard {
  std::string set;
  bool is_open = false;
};

/// Memory that ComputeClient::borrow was given: its owner's callback, which is called once, when the device no longer
/// uses the memory. Device thread only, unless said otherwise.
class BorrowedMemory final : public PostQueue::Posted {
 public:
  using Release = UniqueFunction<void()>;
  /// Bytes of which the address must be a multiple: vector loads of kernels, and the copies of collectives, take 16.
  static constexpr std::size_t alignment = 16;

  /// `release` may be empty. `guard`: null unless the memory is kept. Any thread.
  BorrowedMemory(Location location, Release release, std::shared_ptr<const UpdateGuard> guard = nullptr) noexcept
      : location_(location), release_(std::move(release)), guard_(std::move(guard)) {}
  BorrowedMemory(const BorrowedMemory&) = delete;
  BorrowedMemory& operator=(const BorrowedMemory&) = delete;
  /// The device has never taken the memory, or uses it no longer. Any thread.
  ~BorrowedMemory() { release(); }

  /// The device takes the memory. `posts` is notified when the last handle has been dropped.
  void take(std::shared_ptr<PostQueue> posts) noexcept { posts_ = std::move(posts); }
  /// Precondition: take(). Any thread.
  [[nodiscard]] const std::shared_ptr<PostQueue>& posts() const noexcept { return posts_; }
  [[nodiscard]] bool is_released() const noexcept { return is_released_; }
  /// Throws ServerError Validation if the memory is kept and no update is open.
  void require_update(std::source_location site) const {
    if (guard_ != nullptr && !guard_->is_open) [[unlikely]]
      refuse_write(site);
  }
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
  [[noreturn]] void refuse_write(std::source_location site) const;

  const Location location_;
  Release release_;
  const std::shared_ptr<const UpdateGuard> guard_;
  std::shared_ptr<PostQueue> posts_;
  bool is_released_ = false;
};

}  // namespace cox
