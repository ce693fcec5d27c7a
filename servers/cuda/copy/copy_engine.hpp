#pragma once

#include <coxswain/device_handle/base/unique_function.hpp>
#include <coxswain/runtime/base/location.hpp>
#include <coxswain/runtime/buffer/operation_memory.hpp>
#include <coxswain/runtime/bytes/bytes.hpp>
#include <coxswain/runtime/tensor/copy_plan.hpp>
#include <coxswain/servers/cuda/driver/driver.hpp>
#include <coxswain/servers/cuda/event/cuda_event.hpp>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace cox::detail {

/// A copy between pageable or lazy host memory and the device, on its way. All its pieces are copied by whatever
/// threads have time, through pinned memory of theirs.
struct CopyTask {
  enum class Direction : std::uint8_t { ToDevice, ToHost };
  struct Part {
    CUdeviceptr device = 0;
    CopyPlan plan;
    Bytes host;  ///< the source; or the destination, in memory and nobody else's
  };

  Direction direction = Direction::ToDevice;
  std::vector<Part> parts;
  OperationMemory memory;                                ///< what L14 asks of it
  Location location;                                     ///< on whose behalf
  std::vector<std::shared_ptr<CudaEvent>> dependencies;  ///< must have been reached before
  /// To the host: makes page-locked memory for the parts, which then need not go through that of the engine. Called on
  /// a thread that copies, since it may take long. False: there is none, and `host` of each part is heap memory.
  UniqueFunction<bool(std::vector<Part>& parts)> make_direct;
  /// Called once, on a thread that copies, when the device has been given all (then `end` is reached when it has done
  /// it), or the host has all (`end` is null); with the first error, if there was one. Must not throw.
  UniqueFunction<void(CopyTask& task, std::exception_ptr error, std::shared_ptr<CudaEvent> end)> on_completed;
};

struct CopyEngineOptions {
  std::size_t threads = 8;
  std::size_t chunk = std::size_t{2} << 20U;  ///< bytes that are copied at a time
};

/// The threads of a device that copy to and from pageable memory, chunk after chunk through a bounded number of pinned
/// buffers, so that neither a client nor the device thread waits for a large copy. Started at the first use; asleep
/// while there is nothing to copy. A task is taken up when the device has come to it: one that has to wait holds no
/// buffers that others need. Any thread.
class CopyEngine {
 public:
  CopyEngine(std::string thread_name, std::shared_ptr<CudaEvents> events, const CopyEngineOptions& options);
  CopyEngine(const CopyEngine&) = delete;
  CopyEngine& operator=(const CopyEngine&) = delete;
  /// As stop().
  ~CopyEngine();

  /// Does not block, but for the start of the threads. Throws std::bad_alloc, std::system_error; then
  /// the task is as it was.
  void add(CopyTask&& task);
  /// Does all that was added, then joins the threads and gives the buffers back. Idempotent.
  void stop() noexcept;

 private:
  struct Job;
  class Copier;

  void arrive(const std::shared_ptr<Job>& job);
  void run();
  [[nodiscard]] std::shared_ptr<Job> next_job();
  [[nodiscard]] bool leave(Job& job);
  static void finish(Job& job, Copier* copier) noexcept;

  const std::string thread_name_;
  const std::shared_ptr<CudaEvents> events_;
  const CopyEngineOptions options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Job>> jobs_;  // that have pieces nobody has taken; guarded by mutex_, as all below
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace cox::detail
