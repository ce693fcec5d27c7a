#pragma once

#include <coxswain/tools/cox/stress/activity.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace cox::stress {

/// The client threads of a run: starts them together, requests them to stop, and detects a stuck one.
class Crew {
 public:
  explicit Crew(std::uint32_t clients) : activities_(clients) {}
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;
  /// Precondition: joined or abandoned.
  ~Crew() = default;

  /// Starts a thread for each client, which calls prepare(client), waits for all others, then calls work(client).
  /// Neither may throw. Throws std::system_error if the system has no more threads; all threads have then been joined.
  void start(const std::function<void(std::uint32_t)>& prepare, const std::function<void(std::uint32_t)>& work);
  /// Blocks until all clients have finished or `time` is reached; returns whether all have finished.
  [[nodiscard]] bool finished_by(std::chrono::steady_clock::time_point time);
  void stop() noexcept { stop_.store(true, std::memory_order_relaxed); }
  [[nodiscard]] const std::atomic<bool>& stopped() const noexcept { return stop_; }
  void join();
  /// Detaches the threads. This object must then live as long as the process.
  void abandon();

  [[nodiscard]] Activity& activity(std::uint32_t client) noexcept { return activities_[client]; }
  [[nodiscard]] std::uint64_t operations() const noexcept;
  [[nodiscard]] std::uint64_t faults() const noexcept;
  /// A client whose count of operations has not changed between calls for `patience` or longer. One thread.
  [[nodiscard]] std::optional<std::uint32_t> stuck(std::chrono::steady_clock::duration patience);

 private:
  struct Watched {
    std::uint64_t operations = 0;
    std::chrono::steady_clock::time_point since{};
  };

  void run(std::uint32_t client, const std::function<void(std::uint32_t)>& prepare,
           const std::function<void(std::uint32_t)>& work);

  std::vector<Activity> activities_;
  std::vector<Watched> watched_;
  std::vector<std::thread> threads_;
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint32_t ready_ = 0;     // guarded by mutex_
  std::uint32_t finished_ = 0;  // guarded by mutex_
  bool cancelled_ = false;      // guarded by mutex_: not all threads could be started
};

}  // namespace cox::stress
