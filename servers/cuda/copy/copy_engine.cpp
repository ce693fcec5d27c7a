#include <coxswain/servers/cuda/copy/copy_engine.hpp>

#include <coxswain/device_handle/thread/blocked_signals.hpp>
#include <coxswain/runtime/base/thread_name.hpp>
#include <coxswain/runtime/bytes/bytes.hpp>
#include <coxswain/servers/cuda/copy/copy_pieces.hpp>
#include <coxswain/servers/cuda/copy/device_copy.hpp>
#include <coxswain/servers/cuda/driver/driver_object.hpp>

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <system_error>
#include <utility>

namespace cox::detail {

/// A task and the progress of its copies.
struct CopyEngine::Job {
  CopyTask task;
  std::vector<CopyPiece> pieces;
  bool at_once = false;                 // task.make_direct was set: the thread with the one piece may change the task
  std::atomic<std::size_t> awaited{1};  // dependencies that are not reached, and add() itself
  std::atomic<std::size_t> next{0};     // first piece that no thread has taken
  std::mutex mutex;
  std::exception_ptr error;                      // guarded by mutex, like ends
  std::vector<std::shared_ptr<CudaEvent>> ends;  // after each copier's last piece
  std::size_t copiers = 0;                       // that work on it; guarded by the engine's mutex, like the next
  std::shared_ptr<Job> queued_after;             // the next job in the engine's queue

  [[nodiscard]] const CopyPiece* take() noexcept {
    const std::size_t index = next.fetch_add(1, std::memory_order_relaxed);
    return index < pieces.size() ? &pieces[index] : nullptr;
  }
  [[nodiscard]] bool taken() const noexcept { return next.load(std::memory_order_relaxed) >= pieces.size(); }
  void fail(std::exception_ptr failure) noexcept {
    next.store(pieces.size(), std::memory_order_relaxed);  // the remaining pieces are not needed
    const std::lock_guard lock(mutex);
    if (error == nullptr) error = std::move(failure);
  }
};

/// The stream and the page-locked buffers with which a thread of the engine copies.
class CopyEngine::Copier {
 public:
  explicit Copier(CopyEngine& engine)
      : engine_(engine), events_(*engine.events_), chunk_(engine.options_.chunk), stream_(engine.take_stream()) {}
  Copier(const Copier&) = delete;
  Copier& operator=(const Copier&) = delete;
  ~Copier() {
    for (const Buffer& buffer : buffers_)
      if (buffer.event) buffer.event->wait();
  }

  void work(Job& job) {
    try {
      if (job.at_once) {
        direct(job);
      } else if (job.task.direction == CopyTask::Direction::ToDevice) {
        to_device(job);
      } else {
        to_host(job);
      }
    } catch (...) {
      job.fail(std::current_exception());
      // Earlier pieces may be in flight. Wait for them, since their memory will be freed.
      COX_CUDA_CHECK(stream_synchronize(stream_.get()));
    }
  }

  /// An event that is reached when all of these are.
  std::shared_ptr<CudaEvent> join(const std::vector<std::shared_ptr<CudaEvent>>& ends) {
    if (ends.size() == 1) return ends.front();
    for (const auto& end : ends) end->enqueue_wait(stream_.get());
    return events_.record(stream_.get());
  }

 private:
  struct Buffer {
    [[nodiscard]] std::byte* data() const noexcept { return static_cast<std::byte*>(memory.get()); }

    DriverHostMemory memory;
    std::shared_ptr<CudaEvent> event;  // the device uses the memory until this is reached
    const CopyPiece* piece = nullptr;  // being copied to the host
  };

  Buffer& next_buffer() {
    Buffer& buffer = buffers_[turn_++ % buffers_.size()];
    if (!buffer.memory) COX_CUDA_TRY(host_alloc(buffer.memory.out(), chunk_, CU_MEMHOSTALLOC_PORTABLE));
    if (const auto event = std::exchange(buffer.event, nullptr)) event->wait();
    return buffer;
  }

  void to_device(Job& job) {
    std::shared_ptr<CudaEvent> last;
    while (const CopyPiece* const piece = job.take()) {
      const CopyTask::Part& part = job.task.parts[piece->part];
      Buffer& buffer = next_buffer();
      read(part.host, piece->host_offset, {buffer.data(), piece->size()});
      copy_rows_to_device(part.device + piece->device_offset, buffer.data(), piece->rows, piece->row_bytes,
                          piece->pitch, stream_.get());
      last = buffer.event = events_.record(stream_.get());
    }
    if (last == nullptr) return;
    const std::lock_guard lock(job.mutex);
    job.ends.push_back(std::move(last));
  }

  static void read(const Bytes& source, std::size_t offset, std::span<std::byte> destination) {
    if (source.is_resident()) return source.copy_to(destination, offset);
    BytesReader reader(source);
    reader.skip(offset);
    reader.read(destination);
  }

  // Copies the whole task on this thread. If there is no page-locked memory for it, adds it as another job instead.
  void direct(Job& job) {
    if (job.take() == nullptr) return;
    if (!job.task.make_direct(job.task.parts)) {
      job.task.make_direct.reset();
      return engine_.add(std::move(job.task));
    }
    for (CopyTask::Part& part : job.task.parts)
      if (part.plan.size() != 0)
        copy_rows_to_host(part.host.data(), part.device, part.plan.rows, part.plan.row_bytes, part.plan.pitch,
                          stream_.get());
    events_.record(stream_.get())->wait();
  }

  void to_host(Job& job) {
    std::size_t in_flight = 0;
    bool more = true;
    while (true) {
      while (more && in_flight < buffers_.size()) {
        const CopyPiece* const piece = job.take();
        more = piece != nullptr;
        if (!more) break;
        Buffer& buffer = next_buffer();
        const CopyTask::Part& part = job.task.parts[piece->part];
        copy_rows_to_host(buffer.data(), part.device + piece->device_offset, piece->rows, piece->row_bytes,
                          piece->pitch, stream_.get());
        buffer.event = events_.record(stream_.get());
        buffer.piece = piece;
        ++in_flight;
      }
      if (in_flight == 0) return;
      Buffer& oldest = buffers_[(turn_ - in_flight) % buffers_.size()];
      --in_flight;
      std::exchange(oldest.event, nullptr)->wait();
      std::byte* const host = job.task.parts[oldest.piece->part].host.data();
      std::copy_n(oldest.data(), oldest.piece->size(), host + oldest.piece->host_offset);
    }
  }

  CopyEngine& engine_;
  CudaEvents& events_;
  const std::size_t chunk_;
  DriverStream stream_;
  std::array<Buffer, 3> buffers_;
  std::size_t turn_ = 0;
};

CopyEngine::CopyEngine(std::string thread_name, std::shared_ptr<CudaEvents> events, const CopyEngineOptions& options)
    : thread_name_(std::move(thread_name)), events_(std::move(events)), options_(options) {
  for (std::size_t i = 0; i < options_.threads; ++i)
    COX_CUDA_TRY(stream_create(unused_streams_.emplace_back().out(), CU_STREAM_NON_BLOCKING, 0));
}

// There is one for each thread.
DriverStream CopyEngine::take_stream() noexcept {
  const std::lock_guard lock(mutex_);
  DriverStream taken = std::move(unused_streams_.back());
  unused_streams_.pop_back();
  return taken;
}

CopyEngine::~CopyEngine() { stop(); }

void CopyEngine::add(CopyTask&& task) {
  auto job = std::make_shared<Job>();
  if (task.make_direct) {
    job->at_once = true;
    job->pieces.emplace_back();  // one piece, for one thread
  } else {
    for (std::size_t part = 0; part < task.parts.size(); ++part)
      append_pieces(job->pieces, part, task.parts[part].plan, options_.chunk);
  }
  {
    const std::lock_guard lock(mutex_);
    try {
      // When the engine stops, a copy thread may still add a task again: that thread will do it.
      while (!stopping_ && threads_.size() < options_.threads) {
        const BlockedSignals blocked;
        threads_.emplace_back([this] { run(); });
      }
    } catch (const std::system_error&) {  // no further thread can start: the existing ones suffice
      if (threads_.empty()) throw;
    }
  }
  const std::vector<std::shared_ptr<CudaEvent>> after = std::move(task.dependencies);
  job->task = std::move(task);
  if (job->pieces.empty()) return job->task.on_completed(job->task, nullptr, nullptr);
  for (const std::shared_ptr<CudaEvent>& event : after) {
    if (event->reached()) continue;
    job->awaited.fetch_add(1, std::memory_order_relaxed);
    try {
      event->notify([this, job] { arrive(job); });
    } catch (...) {  // out of memory for the notification
      event->wait();
      job->awaited.fetch_sub(1, std::memory_order_relaxed);
    }
  }
  arrive(job);
}

void CopyEngine::arrive(const std::shared_ptr<Job>& job) noexcept {
  // Acquire and release pair with each other: the last arrival sees what happened before each of the others.
  if (job->awaited.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  const std::lock_guard lock(mutex_);
  (first_ == nullptr ? first_ : last_->queued_after) = job;
  last_ = job.get();
  changed_.notify_all();
}

void CopyEngine::stop() noexcept {
  std::vector<std::thread> threads;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    threads = std::move(threads_);
    changed_.notify_all();
  }
  for (std::thread& thread : threads) thread.join();
  unused_streams_.clear();
}

void CopyEngine::run() {
  name_this_thread(thread_name_);
  std::optional<Copier> copier;
  while (const std::shared_ptr<Job> job = next_job()) {
    try {
      if (!copier) {  // first job
        events_->context().make_current();
        copier.emplace(*this);
      }
      copier->work(*job);
    } catch (...) {
      job->fail(std::current_exception());
    }
    if (leave(*job)) finish(*job, copier ? &*copier : nullptr);
  }
}

// The oldest job that still has pieces. Null when the engine has stopped and there is no such job.
std::shared_ptr<CopyEngine::Job> CopyEngine::next_job() {
  std::unique_lock lock(mutex_);
  while (true) {
    while (first_ != nullptr && first_->taken()) first_ = std::exchange(first_->queued_after, nullptr);
    if (first_ != nullptr) {
      ++first_->copiers;
      return first_;
    }
    if (stopping_) return nullptr;
    changed_.wait(lock);
  }
}

// Returns whether this copier was the last one: no further copier takes a job that has no pieces left.
bool CopyEngine::leave(Job& job) {
  const std::lock_guard lock(mutex_);
  return --job.copiers == 0;
}

void CopyEngine::finish(Job& job, Copier* copier) noexcept {
  std::shared_ptr<CudaEvent> end;
  try {
    if (copier != nullptr && !job.ends.empty()) end = copier->join(job.ends);
  } catch (...) {
    job.fail(std::current_exception());
  }
  // There is no event for all copies: wait here, since their memory must stay until they have completed.
  if (end == nullptr)
    for (const auto& each : job.ends) each->wait();
  job.ends.clear();
  if (job.task.on_completed)
    job.task.on_completed(job.task, job.error, std::move(end));  // empty if direct() has added the task as another job
}

}  // namespace cox::detail
