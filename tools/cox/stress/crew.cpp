#include <coxswain/tools/cox/stress/crew.hpp>

namespace cox::stress {

void Crew::start(const std::function<void(std::uint32_t)>& prepare, const std::function<void(std::uint32_t)>& work) {
  const auto clients = static_cast<std::uint32_t>(activities_.size());
  watched_.assign(clients, {.operations = 0, .since = std::chrono::steady_clock::now()});
  threads_.reserve(clients);
  try {
    for (std::uint32_t client = 0; client < clients; ++client)
      threads_.emplace_back([this, client, prepare, work] { run(client, prepare, work); });
  } catch (...) {
    {
      const std::lock_guard lock(mutex_);
      cancelled_ = true;
    }
    changed_.notify_all();
    join();
    throw;
  }
}

void Crew::run(std::uint32_t client, const std::function<void(std::uint32_t)>& prepare,
               const std::function<void(std::uint32_t)>& work) {
  prepare(client);
  {
    std::unique_lock lock(mutex_);
    if (++ready_ == activities_.size()) changed_.notify_all();
    changed_.wait(lock, [this] { return cancelled_ || ready_ == activities_.size(); });
    if (cancelled_) return;
  }
  work(client);
  activities_[client].finished.store(true, std::memory_order_relaxed);
  const std::lock_guard lock(mutex_);
  ++finished_;
  changed_.notify_all();
}

bool Crew::finished_by(std::chrono::steady_clock::time_point time) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, time, [this] { return finished_ == activities_.size(); });
}

void Crew::join() {
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void Crew::abandon() {
  for (std::thread& thread : threads_) thread.detach();
  threads_.clear();
}

std::uint64_t Crew::operations() const noexcept {
  std::uint64_t sum = 0;
  for (const Activity& activity : activities_) sum += activity.operations.load(std::memory_order_relaxed);
  return sum;
}

std::uint64_t Crew::faults() const noexcept {
  std::uint64_t sum = 0;
  for (const Activity& activity : activities_) sum += activity.faults.load(std::memory_order_relaxed);
  return sum;
}

std::optional<std::uint32_t> Crew::stuck(std::chrono::steady_clock::duration patience) {
  const auto now = std::chrono::steady_clock::now();
  for (std::uint32_t client = 0; client < activities_.size(); ++client) {
    const Activity& activity = activities_[client];
    Watched& watched = watched_[client];
    const std::uint64_t operations = activity.operations.load(std::memory_order_relaxed);
    if (operations != watched.operations || activity.finished.load(std::memory_order_relaxed)) {
      watched = {operations, now};
    } else if (now - watched.since >= patience) {
      return client;
    }
  }
  return std::nullopt;
}

}  // namespace cox::stress
