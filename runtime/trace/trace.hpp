#pragma once

#include <coxswain/device_handle/observe/task_trace.hpp>
#include <coxswain/runtime/trace/recording.hpp>
#include <coxswain/runtime/trace/trace_event.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

/// Recording what device threads, streams and communicators do. Off until start(): then a device thread pays one load
/// a task and whoever calls record() one relaxed load. On, every task of every device thread becomes an Event without
/// any call; its client pays nothing. Memory is taken at start(), once (L7). All functions: any thread.
namespace cox::trace {

struct Options {
  /// Events kept; beyond it the oldest are dropped. 0: none are kept, for NVTX alone.
  std::size_t capacity = 65'536;
  bool nvtx = false;  ///< Tasks and spans also become NVTX ranges of the domain "coxswain", where nvtx_available().
};

/// Begins a recording, and discards one that is under way. Throws std::bad_alloc, Error if NVTX is asked for and not
/// available.
void start(const Options& options = {});

/// Ends the recording and returns it; an empty one if none is under way. Waits for threads that are just writing an
/// event down, nanoseconds each.
[[nodiscard]] Recording stop();

/// Whether this build knows NVTX.
[[nodiscard]] bool nvtx_available() noexcept;

/// The clock of events.
[[nodiscard]] inline std::uint64_t now() noexcept { return trace_stamp(); }

/// `text` with static storage: one copy for each different text, for the life of the process. For names of which there
/// are few, such as kernels'. Takes a lock.
[[nodiscard]] const char* intern(std::string_view text);

namespace detail {
inline constinit std::atomic<bool> enabled{false};
void append(const Event& event) noexcept;
}  // namespace detail

[[nodiscard]] inline bool enabled() noexcept { return detail::enabled.load(std::memory_order_relaxed); }

/// Keeps `event`, if enabled. Does not block and does not allocate, but for a thread's first event.
inline void record(const Event& event) noexcept {
  if (enabled()) [[unlikely]]
    detail::append(event);
}

/// Here and now, as the origin of work that is handed over; none while not enabled.
[[nodiscard]] inline Origin origin() noexcept {
  if (!enabled()) [[likely]]
    return {};
  return {.time = now(), .thread = static_cast<std::uint32_t>(Track::this_thread().id)};
}

/// Records an event from its construction to its destruction, on one thread. Costs one relaxed load while not enabled.
class Span {
 public:
  /// In the row of the calling thread.
  Span(const char* name, Category category) noexcept {
    if (enabled()) [[unlikely]]
      begin(name, Track::this_thread(), category, {});
  }
  /// `from`: what origin() said where the work was handed over.
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

  /// The first two count.
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
