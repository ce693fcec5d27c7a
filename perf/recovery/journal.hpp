#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

namespace cox::perf {

/// The moments of a worker, in the order in which they arrive; Fault may arrive at any time after Started.
enum class Moment : std::uint32_t {
  Started,   ///< main has begun
  Opened,    ///< the contexts of all devices are open
  Prepared,  ///< its kernels are loaded
  Joined,    ///< the communicator of all devices is open; the next call is the constructor of KeptSet
  SetOpen,   ///< the supervisor has given the set to this process
  Kept,      ///< the memory is mapped, its state is known
  Compared,  ///< the contents are those of the state
  Restored,  ///< the memory is whole: torn memory has been written anew, as from a checkpoint
  Stepped,   ///< the first step has finished
  Fault,     ///< it is about to fail
};
constexpr std::size_t moments = 10;

/// What a worker sends to the program that measures.
struct Report {
  Moment moment = Moment::Started;
  std::uint32_t state = 0;  ///< Kept: a KeptState::Kind
  std::int64_t process = 0;
  std::chrono::nanoseconds time{0};  ///< CLOCK_MONOTONIC
  std::uint64_t lost = 0;            ///< Kept: updates that were begun later than the epoch of the state
};

/// CLOCK_MONOTONIC, which all processes share.
[[nodiscard]] std::chrono::nanoseconds monotonic_time() noexcept;

/// Progress that outlives a worker that is killed, in shared memory.
struct Book {
  std::atomic<std::uint64_t> begun{0};            ///< the last update that a worker was about to queue
  std::atomic<std::uint64_t> finished{0};         ///< the last update that is known to be complete
  std::atomic<std::int64_t> step_nanoseconds{0};  ///< time of the last complete step
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

/// A pipe for reports and a book. The descriptors are inherited by programs that this process starts, such as
/// `cox run` and its workers.
class Journal {
 public:
  /// Makes both. Throws std::system_error.
  Journal();
  /// Opens those of the process that measures, by `descriptors`.
  explicit Journal(const std::string& descriptors);
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;
  ~Journal();

  /// For the constructor in a worker.
  [[nodiscard]] std::string descriptors() const;
  [[nodiscard]] Book& book() const noexcept { return *book_; }

  /// Sends a report with the time of this call. Any thread.
  void report(Moment moment, std::uint32_t state = 0, std::uint64_t lost = 0) const noexcept;
  /// Readable if there are reports.
  [[nodiscard]] int descriptor() const noexcept { return read_; }
  /// Takes one report. Returns false if there is none. Does not block.
  [[nodiscard]] bool take(Report& report) const;

 private:
  void map();

  int read_ = -1;  // -1 in a worker
  int write_ = -1;
  int memory_ = -1;
  Book* book_ = nullptr;
};

}  // namespace cox::perf
