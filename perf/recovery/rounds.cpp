#include <coxswain/perf/recovery/rounds.hpp>

#include <coxswain/perf/harness/report.hpp>
#include <coxswain/perf/harness/spread.hpp>
#include <coxswain/perf/recovery/supervised_run.hpp>
#include <coxswain/runtime/base/byte_count.hpp>
#include <coxswain/runtime/kept/kept_state.hpp>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <map>
#include <random>
#include <stdexcept>
#include <string>

namespace cox::perf {
namespace {

using std::chrono::nanoseconds;

constexpr const char* total = "total";
constexpr const char* one_step = "one step, undisturbed";

// The phases after the end of the failed process, each of which ends at a moment of the next process.
struct Phase {
  const char* name;
  Moment end;
  const char* note;
};
constexpr std::array phases{
    Phase{"start", Moment::Started, "from the end of that process to main of the next one: the supervisor"},
    Phase{"devices", Moment::Opened, "the driver and a context on each device"},
    Phase{"kernels", Moment::Prepared, "code of the program"},
    Phase{"communicator", Moment::Joined, "the first all_reduce"},
    Phase{"set", Moment::SetOpen,
          "the constructor of KeptSet; of a standby from the end of that process on: the supervisor"},
    Phase{"memory", Moment::Kept, "kept on each device: import and map; the state"},
    Phase{"compare", Moment::Compared, "all words on the device; not in the total"},
    Phase{"restore", Moment::Restored, "writes what was torn, in place of a checkpoint; not in the total"},
    Phase{"step", Moment::Stepped, "the first step"},
};

double ms(nanoseconds time) { return std::chrono::duration<double, std::milli>(time).count(); }

class Measurement {
 public:
  explicit Measurement(const RecoveryOptions& options)
      : options_(options),
        run_(options),
        random_(options.common.seed),
        current_(&run_.wait_for(Moment::Stepped, nullptr)) {}

  [[nodiscard]] Row measure(Cause cause) {
    values_.clear();
    whole_ = torn_ = most_lost_ = 0;
    for (unsigned round = 0; round < options_.common.rounds; ++round) {
      if (std::chrono::steady_clock::now() - began_ >= options_.budget) break;
      fail_once(cause);
    }
    return row_of(cause);
  }

  void finish() {
    kill(current_->id, SIGUSR2);
    run_.wait_for_success();
  }

 private:
  void fail_once(Cause cause) {
    if (options_.standby) {
      static_cast<void>(run_.wait_for(Moment::Joined, current_));
      run_.pause(std::chrono::milliseconds(20));  // so that it waits for the set
    }
    run_.pause(std::chrono::microseconds(10'000 + random_() % 60'000));
    values_[one_step].push_back(ms(nanoseconds(run_.book().step_nanoseconds.load())));
    const nanoseconds requested = cause_failure(cause);
    WorkerProcess& next = run_.wait_for(Moment::Stepped, current_);
    run_.wait_for_end_of(*current_);
    if (!current_->reached(Moment::Fault)) throw std::runtime_error("a process has ended before its fault");
    if (cause == Cause::Reload) values_["request"].push_back(ms(current_->at(Moment::Fault) - requested));
    add(*current_, next);
    current_ = &next;
  }

  // Returns when it was requested.
  nanoseconds cause_failure(Cause cause) {
    const nanoseconds now = monotonic_time();
    if (cause == Cause::Reload) {
      run_.reload();
    } else if (cause == Cause::Kill) {
      current_->times[static_cast<std::size_t>(Moment::Fault)] = now;
      kill(current_->id, SIGKILL);
    } else {
      sigqueue(current_->id, SIGUSR1, {.sival_int = static_cast<int>(cause)});
    }
    return now;
  }

  // A standby has passed some moments before the fault: those phases take no time.
  void add(const WorkerProcess& failed, const WorkerProcess& next) {
    const nanoseconds fault = failed.at(Moment::Fault);
    const bool was_standby = next.at(Moment::Started) < fault;
    nanoseconds reached = std::min(failed.ended, next.at(was_standby ? Moment::SetOpen : Moment::Started));
    values_["end"].push_back(ms(reached - fault));
    nanoseconds extra{0};
    const bool is_whole = next.state == static_cast<std::uint32_t>(KeptState::Kind::Whole);
    for (const Phase& phase : phases) {
      const nanoseconds at = std::max(reached, next.at(phase.end));
      if (phase.end != Moment::Restored || !is_whole) values_[phase.name].push_back(ms(at - reached));
      if (phase.end == Moment::Compared || phase.end == Moment::Restored) extra += at - reached;
      reached = at;
    }
    values_[total].push_back(ms(reached - fault - extra));
    (is_whole ? whole_ : torn_) += 1;
    most_lost_ = std::max(most_lost_, next.lost);
  }

  [[nodiscard]] Row row_of(Cause cause) {
    Row row{.figure = "F23",
            .name = std::string(to_string(cause)) + ", " + exact_byte_count(options_.bytes) + " kept on each of " +
                    std::to_string(options_.devices.size()) +
                    (options_.mode == KeptMode::Double ? ", two copies" : ", in place") +
                    (options_.standby ? ", with a standby" : ""),
            .unit = "ms",
            .larger_is_better = false,
            .ours = total,
            .contenders = {},
            .spreads = {},
            .notes = {}};
    const auto put = [&](const std::string& name, const std::string& note) {
      const auto found = values_.find(name);
      if (found == values_.end()) return;
      const Spread spread = spread_of(found->second);
      if (!(spread.max > 0)) return;  // before the fault, by a standby
      row.contenders.push_back(name);
      row.spreads[name] = spread;
      row.notes[name] = note;
    };
    put(total, "fault to first finished step; " + std::to_string(whole_ + torn_) +
                   " rounds: " + std::to_string(whole_) + " whole, " + std::to_string(torn_) +
                   " torn; of a whole state at most " + std::to_string(most_lost_) + " steps lost");
    put("end", "from the fault until all of that process has ended");
    for (const Phase& phase : phases) put(phase.name, phase.note);
    put(one_step, "with its wait; writes " + exact_byte_count(options_.step_bytes) +
                      " of kept memory, and before the update " + std::to_string(options_.passes) + " times " +
                      exact_byte_count(options_.pass_bytes) + " of other memory");
    put("request", "from `cox run --reload` until the program gets SIGTERM; it works until then");
    return row;
  }

  const RecoveryOptions& options_;
  SupervisedRun run_;
  std::mt19937_64 random_;
  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  WorkerProcess* current_;  // has finished a step
  std::map<std::string, std::vector<double>> values_;
  std::uint64_t whole_ = 0;
  std::uint64_t torn_ = 0;
  std::uint64_t most_lost_ = 0;
};

}  // namespace

void measure_recovery(const RecoveryOptions& options, std::vector<Row>& rows) {
  Measurement measurement(options);
  for (const Cause cause : options.causes) {
    Row row = measurement.measure(cause);
    if (row.contenders.empty()) continue;
    print_table(row);
    rows.push_back(std::move(row));
  }
  measurement.finish();
}

}  // namespace cox::perf
