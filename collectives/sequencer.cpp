#include <coxswain/collectives/sequencer.hpp>

#include <coxswain/collectives/detail/communicator_sequence.hpp>
#include <coxswain/device_handle/task_error.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <source_location>
#include <utility>

namespace cox {

using detail::CommunicatorSequence;
using detail::LaunchAnswer;

namespace {

CollectiveError closed(CommunicatorNumber communicator) {
  return {CollectiveError::Kind::Aborted,
          fmt::format("communicator {} is closed", static_cast<std::uint64_t>(communicator))};
}

std::exception_ptr aborted(const CommunicatorSequence& among, const std::exception_ptr& cause) {
  const std::string why = cause ? describe(cause) : "no cause was given";
  return std::make_exception_ptr(CollectiveError(CollectiveError::Kind::Aborted, among.name() + " was aborted: " + why,
                                                 std::source_location::current(), cause));
}

}  // namespace

/// The operation that is overdue, and what there is to say about it.
struct Sequencer::Overdue {
  CommunicatorNumber communicator;
  std::uint64_t sequence;
  std::source_location site;
  std::string text;
  std::vector<CommunicatorSequence::Missing> missing;
};

Sequencer::Sequencer(SequencerOptions options)
    : options_([&] {
        if (!options.now) options.now = [] { return std::chrono::steady_clock::now(); };
        return std::move(options);
      }()),
      watchdog_([this](Time now) { return expire(now); }, options_.now) {}

Sequencer::~Sequencer() {
  watchdog_.stop();
  while (!communicators_.empty()) close(communicators_.begin()->first);
}

CommunicatorNumber Sequencer::open(CommunicationId devices, std::chrono::milliseconds timeout) {
  const std::lock_guard lock(mutex_);
  const CommunicatorNumber number{++opened_};
  const std::string id = std::to_string(opened_);
  for (const DeviceId device : devices.devices()) lines_.try_emplace(device);
  auto recorder = std::make_shared<FlightRecorder>(id, devices, options_.recorded_operations, timeout);
  std::string name = "communicator " + id + " " + devices.to_string();
  communicators_.emplace(number, std::make_unique<CommunicatorSequence>(std::move(name), std::move(devices), timeout,
                                                                        options_.max_ahead, std::move(recorder)));
  return number;
}

template <class Change>
bool Sequencer::change(CommunicatorNumber communicator, const Change& change) {
  std::vector<LaunchAnswer> answers;
  std::vector<Line*> lines;
  {
    const std::lock_guard lock(mutex_);
    const auto found = communicators_.find(communicator);
    if (found == communicators_.end()) return false;
    CommunicatorSequence& among = *found->second;
    change(among, answers);
    lines = line_up(communicator, among, answers);
  }
  for (Line* line : lines) attend(*line);
  return true;
}

std::uint64_t Sequencer::submit(CommunicatorNumber communicator, std::size_t rank, const CollectiveRequest& request,
                                Launch launch) {
  std::uint64_t sequence = 0;
  const bool open = change(communicator, [&](CommunicatorSequence& among, std::vector<LaunchAnswer>& answers) {
    among.check_room(rank);
    const Time now = options_.now();
    if (among.begins_operation(rank)) watchdog_.watch(now + among.timeout());  // It may throw, so it comes first.
    sequence = among.submit(rank, request, std::move(launch), now, answers);
    among.settle(order_, answers);
  });
  if (!open) throw closed(communicator);
  return sequence;
}

// Under the lock, for all devices at once: this is what makes it one order.
std::vector<Sequencer::Line*> Sequencer::line_up(CommunicatorNumber number, const CommunicatorSequence& communicator,
                                                 std::vector<LaunchAnswer>& answers) {
  std::vector<Line*> lines;
  for (LaunchAnswer& answer : answers) {
    Line& line = lines_.find(communicator.devices().devices()[answer.rank])->second;
    line.turns.push_back({number, answer.rank, communicator.recorder(), answer.turn, std::move(answer.launch)});
    if (!line.attended && std::ranges::find(lines, &line) == lines.end()) lines.push_back(&line);
  }
  return lines;
}

void Sequencer::attend(Line& line) {
  std::unique_lock lock(mutex_);
  if (line.attended) return;  // Whoever attends it looks again before it leaves.
  line.attended = true;
  while (!line.turns.empty()) {
    std::vector<Turn> turns = std::exchange(line.turns, {});
    lock.unlock();
    for (Turn& turn : turns) call(turn);
    lock.lock();
  }
  line.attended = false;
}

void Sequencer::call(Turn& turn) noexcept {
  try {
    turn.launch(turn.turn);
  } catch (...) {
    turn.recorder->failed(turn.turn.sequence, turn.rank, std::current_exception());
    abort(turn.communicator, std::current_exception());
  }
  turn.launch.reset();
}

void Sequencer::abort(CommunicatorNumber communicator, const std::exception_ptr& cause) {
  change(communicator, [&](CommunicatorSequence& among, std::vector<LaunchAnswer>& answers) {
    among.refuse(aborted(among, cause), answers);
  });
}

void Sequencer::abort(DeviceId device, const std::exception_ptr& cause) {
  std::vector<CommunicatorNumber> numbers;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [number, among] : communicators_)
      if (std::ranges::binary_search(among->devices().devices(), device)) numbers.push_back(number);
  }
  for (const CommunicatorNumber number : numbers) abort(number, cause);
}

void Sequencer::reopen(CommunicatorNumber communicator) {
  const bool open = change(
      communicator, [](CommunicatorSequence& among, const std::vector<LaunchAnswer>& /*none*/) { among.reopen(); });
  if (!open) throw closed(communicator);
}

void Sequencer::close(CommunicatorNumber communicator) {
  const std::exception_ptr cause = std::make_exception_ptr(closed(communicator));
  decltype(communicators_)::node_type closed;  // Goes when its answers are in line.
  change(communicator, [&](CommunicatorSequence& among, std::vector<LaunchAnswer>& answers) {
    among.refuse(aborted(among, cause), answers);
    closed = communicators_.extract(communicator);
  });
}

std::optional<Sequencer::Time> Sequencer::expire(Time now) {
  // Not the same one for ever: it is timed out, or a rank has arrived meanwhile.
  while (const std::optional<Overdue> overdue = first_overdue(now)) time_out(*overdue);
  return next_deadline();
}

std::optional<Sequencer::Overdue> Sequencer::first_overdue(Time now) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [number, among] : communicators_) {
    const std::optional<Time> deadline = among->deadline();
    if (!deadline || *deadline > now) continue;
    CommunicatorSequence::Overdue overdue = among->overdue();
    return Overdue{number, overdue.sequence, overdue.request.caller.site,
                   fmt::format("operation {} of {}, {}, did not have all its ranks after {} ms", overdue.sequence,
                               among->name(), to_string(overdue.request), among->timeout().count()),
                   std::move(overdue.missing)};
  }
  return std::nullopt;
}

void Sequencer::time_out(const Overdue& overdue) {
  std::map<std::size_t, std::string> activities;
  for (const CommunicatorSequence::Missing& missing : overdue.missing)
    activities[missing.rank] =
        activity(missing.device);  // The user's code: with no lock held, so all may have changed.
  change(overdue.communicator, [&](CommunicatorSequence& among, std::vector<LaunchAnswer>& answers) {
    if (!among.deadline()) return;
    const CommunicatorSequence::Overdue still = among.overdue();
    if (still.sequence != overdue.sequence) return;
    std::string text = overdue.text;
    for (const CommunicatorSequence::Missing& missing : still.missing)
      text += fmt::format("; {} is missing, {}{}", missing.device.to_string(), missing.last, activities[missing.rank]);
    among.refuse(std::make_exception_ptr(CollectiveError(CollectiveError::Kind::Timeout, text, overdue.site)), answers);
  });
}

std::string Sequencer::activity(DeviceId device) const {
  if (!options_.device_activity) return {};
  try {
    return ", its device thread: " + options_.device_activity(device);
  } catch (...) {
    return ", its device thread: unknown, " + describe(std::current_exception());
  }
}

std::optional<Sequencer::Time> Sequencer::next_deadline() const {
  const std::lock_guard lock(mutex_);
  std::optional<Time> next;
  for (const auto& [number, among] : communicators_)
    if (const std::optional<Time> deadline = among->deadline()) next = std::min(next.value_or(*deadline), *deadline);
  return next;
}

std::shared_ptr<FlightRecorder> Sequencer::recorder(CommunicatorNumber communicator) const {
  const std::lock_guard lock(mutex_);
  const auto found = communicators_.find(communicator);
  if (found == communicators_.end()) throw closed(communicator);
  return found->second->recorder();
}

}  // namespace cox
