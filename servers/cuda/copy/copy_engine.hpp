#pragma once

#include <coxswain/device_handle/base/unique_function.hpp>
#include <coxswain/runtime/base/location.hpp>
#include <coxswain/runtime/buffer/operation_memory.hpp>
#include <coxswain/runtime/bytes/bytes.hpp>
#include <coxswain/runtime/tensor/copy_plan.hpp>
#include <coxswain/servers/cuda/driver/driver_object.hpp>
#include <coxswain/servers/cuda/event/cuda_event.hpp>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace cox::detail {

/// A copy between pageable or lazy host memory and the device. The threads of the engine share its pieces, and copy
/// them through their page-locked buffers.
struct CopyTask {
  enum class Direction : std::uint8_t { ToDevice, ToHost };
  struct Part {
    CUdeviceptr device = 0;
    CopyPlan plan;
    Bytes host;  ///< the source; or the destination, resident and not shared
  };

  Direction direction = Direction::ToDevice;
  std::vector<Part> parts;
  OperationMemory memory;                                ///< the device memory that the copy uses, for L14
  Location location;                                     ///< device and stream that requested the copy
  std::vector<std::shared_ptr<CudaEvent>> dependencies;  ///< must be reached before the copy starts
  /// For copies to the host: allocates page-locked memory for the parts, so that they need no buffers of the engine.
  /// Called on a copy thread, since it may take long. Returns false if there is none; `host` of each part is then heap
  /// memory.
  UniqueFunction<bool(std::vector<Part>& parts)> make_direct;
  /// Called once, with the first error, if any. To the device: when all copies have been enqueued; `end` is reached
  /// when they have completed, null if they have already. To the host: when the host memory holds all bytes; `end` is
  /// null. Called on a copy thread, or by add() if there is nothing to copy. Must not throw.
  UniqueFunction<void(CopyTask& task, std::exception_ptr error, std::shared_ptr<CudaEvent> end)> on_completed;
};

struct CopyEngineOptions {
  std::size_t threads = 8;
  std::size_t chunk = std::size_t{2} << 20U;  ///< largest piece, in bytes
};

/// The threads of a device that copy to and from pageable memory, chunk by chunk through a bounded number of
/// page-locked buffers, so that neither a client nor the device thread waits for a large copy. They are started at the
/// first use, and sleep while there is nothing to copy. A task starts only when its dependencies have been reached, so
/// that a waiting task holds no buffers that others need. Any thread.
class CopyEngine {
 public:
  /// Creates the streams, with the context current (see CudaStreams::open). Throws CudaError.
  CopyEngine(std::string thread_name, std::shared_ptr<CudaEvents> events, const CopyEngineOptions& options);
  CopyEngine(const CopyEngine&) = delete;
  CopyEngine& operator=(const CopyEngine&) = delete;
  /// Calls stop().
  ~CopyEngine();

  /// Not after stop(). Does not block, except to start the threads, and to wait for a dependency if there is no memory
  /// for its notification. Throws std::bad_alloc, std::system_error; then the task is unchanged.
  void add(CopyTask&& task);
  /// Blocks until all tasks whose dependencies have been reached are completed, then joins the threads and frees the
  /// buffers. Idempotent.
  void stop() noexcept;

 private:
  struct Job;
  class Copier;

  void arrive(const std::shared_ptr<Job>& job) noexcept;
  void run();
  [[nodiscard]] std::shared_ptr<Job> next_job();
  [[nodiscard]] bool leave(Job& job);
  [[nodiscard]] DriverStream take_stream() noexcept;
  static void finish(Job& job, Copier* copier) noexcept;

  const std::string thread_name_;
  const std::shared_ptr<CudaEvents> events_;
  const CopyEngineOptions options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // The queue of jobs with untaken pieces, linked through the jobs: adding one allocates nothing, so that a task whose
  // dependencies have been reached cannot be lost. Guarded by mutex_, like all members below.
  std::shared_ptr<Job> first_;
  Job* last_ = nullptr;  // valid if there is a first
  bool stopping_ = false;
  std::vector<std::thread> threads_;
  std::vector<DriverStream> unused_streams_;  // one for each thread that has none yet
};

}  // namespace cox::detail
