#include <coxswain/runtime/trace/trace.hpp>

#include <coxswain/device_handle/base/error.hpp>
#include <coxswain/runtime/trace/event_ring.hpp>
#include <coxswain/runtime/trace/nvtx.hpp>
#include <coxswain/runtime/trace/task_name.hpp>

#include <pthread.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <string>
#include <tuple>
#include <typeindex>
#include <unordered_map>
#include <utility>

namespace cox::trace {
namespace {

using detail::EventRing;

constexpr std::size_t most_thread_names = 4096;

// The part of the ring that one thread writes to. While the thread is not busy, quiesce() may take its chunk away.
struct Writer {
  std::atomic<std::uint32_t> busy{0};
  EventRing::Chunk* chunk = nullptr;  // owned by the thread while it is busy, else guarded by Recorder::mutex
};

struct Recorder {
  std::mutex mutex;
  std::set<Writer*> writers;
  std::map<std::uint32_t, std::string> threads;
  std::uint64_t started = 0;
  std::chrono::steady_clock::time_point started_at;
  std::atomic<bool> nvtx{false};
};

// The ring that events are written to. Owned here. Changes only while tracing is off and no writer is busy.
constinit EventRing* ring = nullptr;

Recorder& recorder() {
  static auto& instance = *new Recorder;  // never destroyed: device threads may outlive static destructors
  return instance;
}

std::string name_of_this_thread() {
  std::array<char, 16> name{};
  return pthread_getname_np(pthread_self(), name.data(), name.size()) == 0 ? name.data() : "";
}

// Owns the writer of the calling thread and registers it for the lifetime of the thread.
class OwnWriter {
 public:
  OwnWriter() {
    Recorder& all = recorder();
    const std::scoped_lock lock(all.mutex);
    all.writers.insert(&writer_);
    if (all.threads.size() < most_thread_names) {
      all.threads.insert_or_assign(static_cast<std::uint32_t>(Track::this_thread().id), name_of_this_thread());
    }
  }
  OwnWriter(const OwnWriter&) = delete;
  OwnWriter& operator=(const OwnWriter&) = delete;
  ~OwnWriter() {
    ended = true;
    own = nullptr;
    Recorder& all = recorder();
    const std::scoped_lock lock(all.mutex);
    all.writers.erase(&writer_);
    if (writer_.chunk != nullptr) ring->release(*writer_.chunk);
  }

  // Returns the writer of the calling thread; nullptr while its thread_local objects are being destroyed, and if there
  // is no memory for a writer.
  static Writer* get() noexcept { return own != nullptr ? own : make(); }

 private:
  static Writer* make() noexcept {
    if (ended) return nullptr;
    try {
      thread_local OwnWriter made;
      return own = &made.writer_;
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
  }

  static inline constinit thread_local bool ended = false;
  static inline constinit thread_local Writer* own = nullptr;
  Writer writer_;
};

// Marks the writer busy for the lifetime of the object; see quiesce().
class BusyScope {
 public:
  explicit BusyScope(Writer& writer) noexcept : writer_(writer) { writer_.busy.store(1, std::memory_order_relaxed); }
  ~BusyScope() { writer_.busy.store(0, std::memory_order_release); }  // pairs with the acquire in quiesce()
  BusyScope(const BusyScope&) = delete;
  BusyScope& operator=(const BusyScope&) = delete;

 private:
  Writer& writer_;
};

// Returns the slot for the next event of the thread, or nullptr if the ring has no free chunk.
Event* room(Writer& writer, EventRing& events) noexcept {
  if (writer.chunk == nullptr || events.full(*writer.chunk)) [[unlikely]] {
    if (writer.chunk != nullptr) events.release(*writer.chunk);
    writer.chunk = events.acquire();
    if (writer.chunk == nullptr) {
      events.drop(1);
      return nullptr;
    }
  }
  Event* const event = &writer.chunk->events[writer.chunk->count++];
  // The ring is larger than the caches: prefetch the next event's cache lines while this event is written.
  const char* const next = reinterpret_cast<const char*>(event + 1);
  for (std::size_t line = 0; line < sizeof(Event); line += 64) __builtin_prefetch(next + line, 1);
  return event;
}

// Records an event if tracing is on. `fill(Event&)` writes it into a slot that may still hold an older event.
template <class Fill>
void keep(Fill&& fill) noexcept {
  if (!detail::enabled.load(std::memory_order_acquire)) return;  // pairs with start(): the barrier is prepared
  Writer* const writer = OwnWriter::get();
  if (writer == nullptr) return;
  const BusyScope busy(*writer);
  SystemPlatform::light_barrier();                               // pairs with the heavy_barrier in quiesce(), see there
  if (!detail::enabled.load(std::memory_order_acquire)) return;  // pairs with start(): `ring` is set
  if (ring == nullptr) return;
  if (Event* const kept = room(*writer, *ring)) fill(*kept);
}

// ---- tasks

const char* name_of(const std::type_info& type) {
  thread_local std::unordered_map<std::type_index, const char*> names;
  const char*& name = names[type];
  if (name == nullptr) name = intern(task_name(type));
  return name;
}

constinit thread_local bool operation_named = false;

void begin_range(const std::type_info& type) noexcept {
  const char* name = "task";
  try {
    name = name_of(type);
  } catch (const std::bad_alloc&) {  // then the range keeps the name "task"
  }
  detail::Nvtx::push(name);
  operation_named = false;
}

void name_range(const char* name) noexcept {
  detail::Nvtx::push(name);
  operation_named = true;
}

void end_task(const TaskRecord& task) noexcept {
  keep([&task](Event& event) {
    event.name = task.label != nullptr ? task.label : task.operation;
    event.type = task.type;
    event.track = {.kind = Track::Kind::DeviceThread, .stage = task.stage, .device = task.device, .id = task.thread};
    event.begin = task.start;
    event.end = task.end;
    event.origin = {.time = task.submitted, .thread = task.client};
    event.arguments = {};
    event.stream = task.stream;
    event.file = task.file;
    event.line = task.line;
    event.category = Category::Task;
    event.outcome = task.outcome;
  });
}

void end_ranges(const TaskRecord& task) noexcept {
  if (operation_named) detail::Nvtx::pop();
  detail::Nvtx::pop();
  end_task(task);
}

constexpr TaskTracer quiet_tracer{.end = end_task};
constexpr TaskTracer nvtx_tracer{.begin = begin_range, .operation = name_range, .end = end_ranges};

// ---- conversion of stamps into a recording

class Clock {
 public:
  explicit Clock(std::uint64_t started)
      : started_(started), nanoseconds_(stamps_are_time() ? nanoseconds_per_stamp() : 1.0) {}

  [[nodiscard]] std::uint64_t since_start(std::uint64_t stamp) const noexcept {
    if (stamp <= started_) return 0;
    return static_cast<std::uint64_t>(std::llround(static_cast<double>(stamp - started_) * nanoseconds_));
  }

 private:
  std::uint64_t started_;
  double nanoseconds_;
};

Event finished(Event event, const Clock& clock) {
  event.begin = clock.since_start(event.begin);
  event.end = std::max(clock.since_start(event.end), event.begin);
  event.origin.time = clock.since_start(event.origin.time);
  if (event.name == nullptr) event.name = event.type != nullptr ? name_of(*event.type) : "";
  event.type = nullptr;
  return event;
}

Recording collect(const EventRing& full, const Clock& clock) {
  Recording recording;
  recording.dropped = full.dropped();
  full.for_each([&](const Event& event) { recording.events.push_back(finished(event, clock)); });
  std::ranges::sort(recording.events, {}, [](const Event& event) { return std::tuple(event.begin, ~event.end); });
  return recording;
}

// Stops all recording. When this returns no thread writes to the ring, and none does until the next start. A thread
// either sees `enabled` false after its light_barrier, or this function sees the thread busy after the heavy_barrier
// and waits for it.
void quiesce(Recorder& all) {
  set_task_tracer(nullptr);
  detail::enabled.store(false, std::memory_order_relaxed);
  SystemPlatform::heavy_barrier();  // pairs with the light_barrier in keep()
  for (Writer* const writer : all.writers) {
    while (writer->busy.load(std::memory_order_acquire) != 0) SystemPlatform::pause();  // pairs with ~BusyScope
    writer->chunk = nullptr;
  }
}

}  // namespace

void start(const Options& options) {
  if (options.nvtx && !nvtx_available()) throw Error("cannot trace with NVTX: this build has no nvtx3/nvToolsExt.h");
  prepare_platform();
  auto fresh = options.capacity != 0 ? std::make_unique<EventRing>(options.capacity) : nullptr;
  Recorder& all = recorder();
  const std::scoped_lock lock(all.mutex);
  quiesce(all);
  const std::unique_ptr<EventRing> former(std::exchange(ring, fresh.release()));
  all.nvtx.store(options.nvtx, std::memory_order_relaxed);
  all.started = now();
  all.started_at = std::chrono::steady_clock::now();
  detail::enabled.store(true, std::memory_order_release);  // pairs with the acquires in keep()
  set_task_tracer(options.nvtx ? &nvtx_tracer : &quiet_tracer);
}

Recording stop() {
  Recorder& all = recorder();
  std::unique_lock lock(all.mutex);
  quiesce(all);
  all.nvtx.store(false, std::memory_order_relaxed);
  const std::unique_ptr<EventRing> taken(std::exchange(ring, nullptr));
  const std::uint64_t started = all.started;
  const auto started_at = all.started_at.time_since_epoch();
  const auto threads = all.threads;
  lock.unlock();
  if (taken == nullptr) return {};
  Recording recording = collect(*taken, Clock(started));
  recording.threads = threads;
  recording.started = static_cast<std::uint64_t>(std::chrono::nanoseconds(started_at).count());
  return recording;
}

bool nvtx_available() noexcept { return detail::Nvtx::available; }

const char* intern(std::string_view text) {
  static auto& mutex = *new std::mutex;
  static auto& texts = *new std::set<std::string, std::less<>>;
  const std::scoped_lock lock(mutex);
  const auto found = texts.find(text);
  return (found != texts.end() ? found : texts.emplace(text).first)->c_str();
}

void detail::append(const Event& event) noexcept {
  keep([&event](Event& kept) { kept = event; });
}

void Span::begin(const char* name, const Track& track, Category category, const Origin& from) noexcept {
  Event& event = event_.emplace();
  event.name = name;
  event.track = track;
  event.category = category;
  event.origin = from;
  ranged_ = recorder().nvtx.load(std::memory_order_relaxed);
  if (ranged_) detail::Nvtx::push(name);
  event.begin = now();
}

void Span::add(const Argument& argument) noexcept {
  const auto free = std::ranges::find(event_->arguments, nullptr, &Argument::name);
  if (free != event_->arguments.end()) *free = argument;
}

void Span::end() noexcept {
  event_->end = now();
  if (ranged_) detail::Nvtx::pop();
  record(*event_);
}

}  // namespace cox::trace
