#pragma once

#include <coxswain/device_handle/queue/task.hpp>

#include <atomic>
#include <cstdint>
#include <source_location>
#include <string>
#include <typeinfo>

namespace cox {

/// What a device thread is doing, for others to look at: an odd number while it is in a task, and which task that is.
/// The device thread writes; all its texts have static storage, so a reader may find them outdated, never dangling.
class RunningTask {
 public:
  /// Device thread.
  void enter(const std::type_info* type) noexcept {
    label_.store(nullptr, std::memory_order_relaxed);
    type_.store(type, std::memory_order_relaxed);
    advance_serial();
  }
  void leave() noexcept { advance_serial(); }

  /// Device thread: of the task that it is in or has left last.
  [[nodiscard]] const std::type_info* type() const noexcept { return type_.load(std::memory_order_relaxed); }

  /// Device thread, inside a task that was given a label or a call site.
  void name(const char* label, const std::source_location& site) noexcept {
    file_.store(site.file_name(), std::memory_order_relaxed);
    line_.store(site.line(), std::memory_order_relaxed);
    label_.store(label != nullptr ? label : unlabelled, std::memory_order_release);  // pairs with to_string()
  }

  /// Odd: in a task. Another value each time the thread enters or leaves one.
  [[nodiscard]] std::uint64_t serial() const noexcept { return serial_.load(std::memory_order_acquire); }
  [[nodiscard]] bool in_task() const noexcept { return serial() % 2 == 1; }

  [[nodiscard]] std::string to_string() const;

  /// What name() said of a task; null where it was not called, or not given.
  struct Name {
    const char* label;
    const char* file;
    std::uint32_t line;
  };
  /// Device thread: of the task that it is in or has left last.
  [[nodiscard]] Name last_name() const noexcept {
    const char* const label = label_.load(std::memory_order_relaxed);
    if (label == nullptr) return {};
    return {label != unlabelled ? label : nullptr, file_.load(std::memory_order_relaxed),
            line_.load(std::memory_order_relaxed)};
  }

 private:
  static constexpr char unlabelled[] = "task";

  void advance_serial() noexcept {
    // release: who sees the thread outside a task sees what the task did (DeviceThread::take_over)
    serial_.store(serial_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }

  std::atomic<std::uint64_t> serial_{0};
  std::atomic<const std::type_info*> type_{nullptr};
  std::atomic<const char*> label_{nullptr};
  std::atomic<const char*> file_{nullptr};
  std::atomic<std::uint32_t> line_{0};
};

}  // namespace cox
