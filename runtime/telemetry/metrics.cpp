#include <coxswain/runtime/telemetry/metrics.hpp>

#include <coxswain/device_handle/registry/registry.hpp>
#include <coxswain/device_handle/thread/device_thread.hpp>
#include <coxswain/runtime/error/stream_error.hpp>
#include <coxswain/runtime/telemetry/prometheus_text.hpp>

#include <exception>
#include <map>
#include <mutex>
#include <utility>

namespace cox::metrics {
namespace {

struct Collectors {
  std::mutex mutex;
  std::map<std::uint64_t, Collector> all;
  std::uint64_t last = 0;
  std::uint64_t failed = 0;
};

Collectors& collectors() {
  static auto& instance = *new Collectors;  // never destroyed: registrations may be in static objects
  return instance;
}

void unregister(std::uint64_t number) noexcept {
  if (number == 0) return;
  const std::scoped_lock lock(collectors().mutex);
  collectors().all.erase(number);
}

Labels with(Labels labels, const char* name, const char* value) {
  labels.emplace_back(name, value);
  return labels;
}

void add_tasks(MetricSet& set, const Labels& labels, const Statistics& statistics) {
  const auto number = [](std::uint64_t count) { return static_cast<double>(count); };
  set.counter("cox_tasks_accepted_total", "Tasks accepted by a device thread.", labels, number(statistics.accepted));
  const std::pair<const char*, std::uint64_t> outcomes[] = {{"completed", statistics.completed},
                                                            {"failed", statistics.failed},
                                                            {"cancelled", statistics.cancelled},
                                                            {"expired", statistics.expired}};
  for (const auto& [outcome, count] : outcomes) {
    set.counter("cox_tasks_ended_total", "Tasks that ended, by outcome.", with(labels, "outcome", outcome),
                number(count));
  }
  set.gauge("cox_tasks_queued", "Tasks accepted that have not ended.", labels, number(statistics.depth));
  set.gauge("cox_queue_bytes", "Memory of the queue, in use and kept for reuse.", labels,
            number(statistics.queue_bytes));
  set.histogram("cox_task_wait_seconds", "Time from submission to start.", labels, statistics.wait);
  set.histogram("cox_task_run_seconds", "Time from start to end.", labels, statistics.run);
}

void add_threads(MetricSet& set, const Labels& labels, const Statistics& statistics) {
  const auto number = [](std::uint64_t count) { return static_cast<double>(count); };
  set.counter("cox_device_thread_parks_total", "Times the device thread prepared to sleep.", labels,
              number(statistics.parks));
  set.counter("cox_device_thread_wakes_total", "Times the device thread was woken.", labels, number(statistics.wakes));
  set.counter("cox_device_thread_stalls_total", "Tasks reported because they held the device thread too long.", labels,
              number(statistics.stalls));
}

}  // namespace

Registration& Registration::operator=(Registration&& other) noexcept {
  unregister(std::exchange(number_, std::exchange(other.number_, 0)));
  return *this;
}

Registration::~Registration() { unregister(number_); }

Registration register_collector(Collector collector) {
  Collectors& known = collectors();
  const std::scoped_lock lock(known.mutex);
  known.all.emplace(++known.last, std::move(collector));
  return Registration(known.last);
}

MetricSet collect() {
  MetricSet set;
  for (const auto& thread : Registry<DeviceThread>::all()) {
    const Statistics statistics = thread->statistics();
    const Labels labels{{"device", thread->device().to_string()}, {"stage", to_string(thread->stage())}};
    add_tasks(set, labels, statistics);
    add_threads(set, labels, statistics);
  }
  set.counter("cox_stream_errors_total", "Failures of queued work.", {}, static_cast<double>(stream_error_count()));
  Collectors& known = collectors();
  const std::scoped_lock lock(known.mutex);
  for (const auto& [number, collector] : known.all) {
    MetricSet more = set;
    try {
      collector(more);
      set = std::move(more);
    } catch (...) {
      ++known.failed;
    }
  }
  set.counter("cox_metrics_collector_failures_total", "Times a collector of metrics threw.", {},
              static_cast<double>(known.failed));
  return set;
}

std::string text() { return prometheus_text(collect()); }

}  // namespace cox::metrics
