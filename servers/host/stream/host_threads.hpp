#pragma once

#include <coxswain/device_handle/observe/wait_graph.hpp>

#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace cox::detail {

/// The threads of a host device that run its streams. They are named after the device.
///
/// Not an Asio pool with strands: strands allocate on these threads, where a failed allocation cannot be reported to a
/// caller (docs/decisions/0003-host-streams.md). Here a stream that has work is a link of a list.
class HostThreads {
 public:
  /// An object that has work from time to time. Must not be moved or destroyed while it is scheduled.
  class Worker {
   public:
    Worker() = default;
    Worker(const Worker&) = delete;
    Worker& operator=(const Worker&) = delete;
    /// Called on one of the threads, once for each schedule(). May schedule the object again, or destroy it.
    virtual void execute() noexcept = 0;

   protected:
    ~Worker() = default;

   private:
    friend class HostThreads;
    Worker* next_ = nullptr;
  };

  /// Work on these threads holds the node `streams` of the wait graph (L10). Throws std::system_error if the system
  /// cannot start another thread.
  HostThreads(const std::string& name, std::size_t count,
              std::shared_ptr<WaitNode> streams = std::make_shared<WaitNode>());
  HostThreads(const HostThreads&) = delete;
  HostThreads& operator=(const HostThreads&) = delete;
  /// Blocks until no worker is scheduled, then joins the threads. Must not be called on one of them.
  ~HostThreads();

  /// Queues the worker after those that are scheduled already. It must not be scheduled itself. Neither blocks nor
  /// allocates. Any thread.
  void schedule(Worker& worker) noexcept;

 private:
  void run();
  void join() noexcept;

  std::mutex mutex_;
  std::condition_variable changed_;
  Worker* first_ = nullptr;  // guarded by mutex_, like last_ and stopping_
  Worker* last_ = nullptr;
  bool stopping_ = false;
  const std::shared_ptr<WaitNode> streams_;
  std::vector<std::thread> threads_;
};

}  // namespace cox::detail
