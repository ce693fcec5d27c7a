#pragma once

namespace cox {

/// What a service has its device thread do while that looks for tasks: see DeviceThread::while_idle(). Called on that
/// thread, outside tasks.
class IdleWork {
 public:
  /// Called again and again; takes less than a microsecond, as tasks may come. Returns whether to be called again.
  virtual bool look() noexcept = 0;
  /// It is not called any more: it was done, a task has come, or the thread is about to sleep.
  virtual void end() noexcept = 0;

 protected:
  ~IdleWork() = default;
};

}  // namespace cox
