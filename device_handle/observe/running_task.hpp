#pragma once

#include <coxswain/device_handle/queue/task.hpp>

#include <atomic>
#include <cstdint>
#include <source_location>
#include <string>
#include <typeinfo>

namespace cox {

/// What a device thread is doing, readable by other threads: a serial number that is odd while the thread is in a task,
/// and which task that is. Only the device thread writes. All texts have static storage, so a reader may get outdated
/// ones, but never dangling ones.
class RunningTask {
 public:
  /// Device thread.
  void enter(const std::type_info* type) noexcept {
    label_.store(nullptr, std::memory_order_relaxed);
    type_.store(type, std::memory_order_relaxed);
    advance_serial();
  }
  void leave() noexcept { advance_serial(); }

  /// Device thread. The type of the running task, or of the last one.
  [[nodiscard]] const std::type_info* type() const noexcept { return type_.load(std::memory_order_relaxed); }

  /// Names the running task. Device thread, inside a task that was given a label or a call site.
  void name(const char* label, const std::source_location& site) noexcept {
    file_.store(site.file_name(), std::memory_order_relaxed);
    line_.store(site.line(), std::memory_order_relaxed);
    label_.store(label != nullptr ? label : unlabelled, std::memory_order_release);  // pairs with to_string()
  }

  /// Odd: in a task. The value changes each time the thread enters or leaves a task.
  [[nodiscard]] std::uint64_t serial() const noexcept { return serial_.load(std::memory_order_acquire); }
  [[nodiscard]] bool in_task() const noexcept { return serial() % 2 == 1; }

  [[nodiscard]] std::string to_string() const;

  /// The arguments of name() for a task; null if name() was not called or an argument was not given.
  struct Name {
    const char* label;
    const char* file;
    std::uint32_t line;
  };
  /// Device thread. The name of the running task, or of the last one.
  [[nodiscard]] Name last_name() const noexcept {
    const char* const label = label_.load(std::memory_order_relaxed);
    if (label == nullptr) return {};
    return {label != unlabelled ? label : nullptr, file_.load(std::memory_order_relaxed),
            line_.load(std::memory_order_relaxed)};
  }

 private:
  static constexpr char unlabelled[] = "task";

  void advance_serial() noexcept {
    // release: pairs with the acquire in serial(): a thread that sees this thread outside a task also sees what the
    // task did (TakeOver::take).
    serial_.store(serial_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }

  std::atomic<std::uint64_t> serial_{0};
  std::atomic<const std::type_info*> type_{nullptr};
  std::atomic<const char*> label_{nullptr};
  std::atomic<const char*> file_{nullptr};
  std::atomic<std::uint32_t> line_{0};
};

}  // namespace cox
