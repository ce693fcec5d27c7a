#pragma once

#include <cstddef>
#include <memory>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace cox::model {

/// A stackful coroutine. Several fibers share one operating-system thread; exactly one of them runs.
/// What a C++ exception keeps per thread (caught and in flight) is kept per fiber, so a fiber may switch inside a catch
/// block.
class Fiber {
 public:
  /// Stands for the stack that the calling thread already has.
  Fiber();
  /// A fiber that will run entry(argument) at the first switch to it. `entry` must never return.
  Fiber(void (*entry)(void*), void* argument);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Suspends `from`, which must be the running fiber, and resumes `to`. Returns when somebody switches back to `from`.
  static void switch_to(Fiber& from, Fiber& to) noexcept;

  /// False when the stack was overrun.
  bool intact() const noexcept;

 private:
  static void begin() noexcept;

  static constexpr std::size_t stack_bytes = 256 * 1024;

  struct ExceptionState {
    void* caught = nullptr;
    unsigned in_flight = 0;
  };

  void (*entry_)(void*) = nullptr;
  void* argument_ = nullptr;
  std::unique_ptr<std::byte[]> stack_;
  ExceptionState exceptions_;
#if defined(__x86_64__)
  void* stack_pointer_ = nullptr;
#else
  ucontext_t context_{};
#endif
  // For the sanitizers, which must know of every switch.
  [[maybe_unused]] void* sanitizer_state_ = nullptr;
  [[maybe_unused]] const void* stack_bottom_ = nullptr;
  [[maybe_unused]] std::size_t stack_size_ = 0;
};

}  // namespace cox::model
