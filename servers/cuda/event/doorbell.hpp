#pragma once

#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/runtime/base/unique_function.hpp>

#include <functional>
#include <memory>

namespace cox::detail {

/// How other threads (the poller, those that copy, other device threads) reach the device thread of a server: they
/// leave calls for it, or have it look what has become possible. Rings that come before it has answered are one.
class Doorbell {
 public:
  using Call = UniqueFunction<void()>;

  /// `answer`: what the device thread does after the calls. Any thread: a server may be built before it has its device
  /// thread.
  Doorbell(DeviceId device, std::function<void()> answer);
  /// This is the thread of the device, or that of a caller where the device is inline. Before the first ring.
  /// Idempotent.
  void attach() {
    if (!submit_) [[unlikely]]
      find_device_thread();
  }
  Doorbell(const Doorbell&) = delete;
  Doorbell& operator=(const Doorbell&) = delete;

  /// Any thread. A full queue neither blocks nor refuses it. Does not block, but for a device that is inline; and for a
  /// second at most while there is no memory.
  void ring() noexcept;
  /// Calls `call` on the device thread, in the order of the posts; what it throws is a TaskError of the device. Any
  /// thread. Throws std::bad_alloc.
  void post(Call call);
  /// What call_standing() calls, on the device thread; what it throws is a TaskError of the device. Device thread.
  void set_standing(Call call) noexcept;
  /// As post() of that, once for all that come before it is called. Any thread. Throws nothing.
  void call_standing() noexcept;
  /// Makes the calls that have been posted, and those that they post. Returns whether there were any. Device thread;
  /// not inside a call.
  bool make_calls() noexcept;

  /// The device thread will look for calls by itself: what it posts meanwhile does not ring. If any is left at the end,
  /// it rings.
  class Attending {
   public:
    explicit Attending(Doorbell& doorbell) noexcept;
    Attending(const Attending&) = delete;
    Attending& operator=(const Attending&) = delete;
    ~Attending();

   private:
    Doorbell& doorbell_;
    const void* const outer_;
  };
  /// The device thread answers no more: it will make the calls by itself. Device thread.
  void mute() noexcept;

 private:
  void find_device_thread();

  struct Shared;
  const DeviceId device_;
  std::shared_ptr<Shared> shared_;
  std::function<void()> submit_;
};

}  // namespace cox::detail
