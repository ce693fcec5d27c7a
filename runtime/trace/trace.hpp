#pragma once

#include <coxswain/device_handle/base/visibility.hpp>
#include <coxswain/device_handle/observe/task_trace.hpp>
#include <coxswain/runtime/trace/recording.hpp>
#include <coxswain/runtime/trace/trace_event.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

/// Records what device threads, streams and communicators do. Off until start(): until then a device thread executes
/// one load per task, and a caller of record() one relaxed load. While tracing is on, every task of every device thread
/// becomes an Event without any call; the submitting client thread pays at most one reading of the clock. Memory is
/// allocated once, in start() (L7). All functions: any thread.
namespace cox::trace {

struct Options {
  /// Number of events kept; beyond it the oldest are dropped. 0: none are kept, for NVTX ranges only.
  std::size_t capacity = 65'536;
  bool nvtx = false;  ///< Tasks and spans also become NVTX ranges of the domain "coxswain". Needs nvtx_available().
};

/// Begins a recording; a recording in progress is discarded. Throws std::bad_alloc, and Error if NVTX is requested but
/// not available.
void start(const Options& options = {});

/// Ends the recording and returns it; returns an empty one if none is in progress. Waits for threads that are writing
/// an event at that moment, nanoseconds each.
[[nodiscard]] Recording stop();

/// Whether this build supports NVTX.
[[nodiscard]] bool nvtx_available() noexcept;

/// The current time on the clock of events.
[[nodiscard]] inline std::uint64_t now() noexcept { return trace_stamp(); }

/// Returns a copy of `text` with static storage: one copy for each distinct text, kept for the lifetime of the process.
/// For names of which there are few, such as those of kernels. Takes a lock.
[[nodiscard]] const char* intern(std::string_view text);

namespace detail {
COX_VISIBILITY_DEFAULT inline constinit std::atomic<bool> enabled{false};
void append(const Event& event) noexcept;
}  // namespace detail

[[nodiscard]] inline bool enabled() noexcept { return detail::enabled.load(std::memory_order_relaxed); }

/// Records `event`, if enabled. Does not block, and does not allocate except for the first event of a thread.
inline void record(const Event& event) noexcept {
  if (enabled()) [[unlikely]]
    detail::append(event);
}

/// The current time and thread, as the origin of work that is handed over; an empty Origin while not enabled.
[[nodiscard]] inline Origin origin() noexcept {
  if (!enabled()) [[likely]]
    return {};
  return {.time = now(), .thread = static_cast<std::uint32_t>(Track::this_thread().id)};
}

/// Records an event that lasts from construction to destruction of this object, on one thread. Costs one relaxed load
/// while not enabled.
class Span {
 public:
  /// Records the event in the row of the calling thread.
  Span(const char* name, Category category) noexcept {
    if (enabled()) [[unlikely]]
      begin(name, Track::this_thread(), category, {});
  }
  /// Records the event in the row `track`. `from`: the result of origin() where the work was handed over.
  Span(const char* name, const Track& track, Category category, const Origin& from = {}) noexcept {
    if (enabled()) [[unlikely]]
      begin(name, track, category, from);
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;
  ~Span() {
    if (event_) [[unlikely]]
      end();
  }

  /// Adds an argument; only the first two are kept.
  void argument(const char* name, std::uint64_t value) noexcept {
    if (event_) [[unlikely]]
      add({name, value});
  }
  void outcome(Outcome outcome) noexcept {
    if (event_) [[unlikely]]
      event_->outcome = outcome;
  }

 private:
  void begin(const char* name, const Track& track, Category category, const Origin& from) noexcept;
  void add(const Argument& argument) noexcept;
  void end() noexcept;

  std::optional<Event> event_;
  bool ranged_ = false;  // an NVTX range is open
};

}  // namespace cox::trace
