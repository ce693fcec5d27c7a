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

/// The threads of a host device on which its streams run, named after the device.
///
/// Not an Asio pool with strands, which allocate on these threads, where nobody could be told that there is no memory
/// (docs/decisions/0003-host-streams.md). Here a stream that has work is a link in a list.
class HostThreads {
 public:
  /// Something that has work to do now and then. Stays where it is while it is scheduled.
  class Worker {
   public:
    Worker() = default;
    Worker(const Worker&) = delete;
    Worker& operator=(const Worker&) = delete;
    /// On one of the threads, once for each schedule(). May schedule itself again, or be destroyed in it.
    virtual void execute() noexcept = 0;

   protected:
    ~Worker() = default;

   private:
    friend class HostThreads;
    Worker* next_ = nullptr;
  };

  /// What runs on the threads holds `streams` up in the graph of waits (L10). Throws std::system_error if the system
  /// has no more threads.
  HostThreads(const std::string& name, std::size_t count,
              std::shared_ptr<WaitNode> streams = std::make_shared<WaitNode>());
  HostThreads(const HostThreads&) = delete;
  HostThreads& operator=(const HostThreads&) = delete;
  /// Blocks until nothing is scheduled any more, then joins the threads. Not on one of them.
  ~HostThreads();

  /// Behind whoever is scheduled already. Not one that is. Neither blocks nor allocates. Any thread.
  void schedule(Worker& worker) noexcept;

 private:
  void run();
  void join() noexcept;

  std::mutex mutex_;
  std::condition_variable changed_;
  Worker* first_ = nullptr;  // guarded by mutex_, as all below
  Worker* last_ = nullptr;
  bool stopping_ = false;
  const std::shared_ptr<WaitNode> streams_;
  std::vector<std::thread> threads_;
};

}  // namespace cox::detail
