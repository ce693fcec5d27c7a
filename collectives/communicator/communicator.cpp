#include <coxswain/collectives/communicator/communicator.hpp>

#include <coxswain/collectives/nccl/nccl_communicator.hpp>
#include <coxswain/collectives/watch/deadline_watch.hpp>
#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>
#include <coxswain/runtime/config/process_settings.hpp>
#include <coxswain/runtime/error/log.hpp>
#include <coxswain/runtime/telemetry/world_member.hpp>

#include <array>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <mutex>
#include <optional>
#include <source_location>
#include <string>

namespace cox {

template <class F>
void Communicator::for_each_sequence(F&& f) const {
  f(all_);
  std::optional<Direction> last;
  for (;;) {
    OperationSequence sequence;
    {
      const std::lock_guard lock(mutex_);
      const auto next = last ? transfers_.upper_bound(*last) : transfers_.begin();
      if (next == transfers_.end()) return;
      last = next->first;
      sequence = next->second;
    }
    f(sequence);
  }
}

Communicator::Communicator(Sequencer& sequencer, CommunicationId devices, std::chrono::milliseconds timeout)
    : sequencer_(sequencer),
      devices_(std::move(devices)),
      timeout_(timeout),
      is_reproducible_(settings().get<bool>("collectives.reproducible")),
      all_(with_recorder(sequencer_.open(devices_, timeout_), devices_)) {}

Communicator::~Communicator() { close(nullptr); }

Communicator::OperationSequence Communicator::with_recorder(CommunicatorNumber number,
                                                            const CommunicationId& devices) const {
  OperationSequence sequence{number, sequencer_.recorder(number)};
  log::write(LogSubsystem::Collectives, LogLevel::Debug, [&] {
    return "communicator " + std::to_string(static_cast<std::uint64_t>(number)) + " " + devices.to_string() +
           " is open";
  });
  return sequence;
}

Communicator::Ranks Communicator::ranks_of(DeviceId device, const CollectiveRequest& request) {
  if (!is_transfer(request.operation)) return {number(), devices_};
  device = devices_.devices()[devices_.rank_of(device)];
  const DeviceId other = devices_.devices()[request.root];
  const bool sends = request.operation == CollectiveOperation::Send;
  return {sends ? transfers(device, other) : transfers(other, device), CommunicationId(std::array{device, other})};
}

CommunicatorNumber Communicator::transfers(DeviceId from, DeviceId to) {
  static_cast<void>(devices_.rank_of(from));
  static_cast<void>(devices_.rank_of(to));
  return find_or_open({from, to}, CommunicationId(std::array{from, to}),
                      [&] { return sequencer_.open_transfers(all_.number, from, to, timeout_); });
}

CommunicatorNumber Communicator::creation() {
  const DeviceId first = devices_.devices().front();
  return find_or_open({first, first}, devices_, [&] { return sequencer_.open_creation(all_.number, timeout_); });
}

template <class Open>
CommunicatorNumber Communicator::find_or_open(const Direction& direction, const CommunicationId& devices,
                                              const Open& open) {
  for (;;) {
    require_open();
    bool aborted = false;
    std::exception_ptr cause;
    {
      const std::lock_guard lock(mutex_);
      if (const auto found = transfers_.find(direction); found != transfers_.end()) return found->second.number;
      aborted = aborted_;
      cause = cause_;
    }
    std::map<Direction, OperationSequence> made;
    OperationSequence& sequence = made[direction];
    const CommunicatorNumber number = open();
    sequence = with_recorder(number, devices);
    if (aborted) sequencer_.abort(number, cause);  // before any rank can submit to it
    if (add(made, aborted)) return number;
    sequencer_.close(number);
  }
}

bool Communicator::add(std::map<Direction, OperationSequence>& made, bool aborted) noexcept {
  const std::lock_guard lock(mutex_);
  if (closed_ || aborted_ != aborted) return false;
  transfers_.merge(made);
  return made.empty();
}

void Communicator::require_open() const {
  const std::lock_guard lock(mutex_);
  if (!closed_) return;
  const std::string why = cause_ ? ": " + describe_cause(cause_) : std::string();
  throw CollectiveError(CollectiveError::Kind::Aborted, "communicator " + devices_.to_string() + " is closed" + why,
                        std::source_location(), cause_);
}

std::exception_ptr Communicator::broken() const {
  std::exception_ptr first;
  for_each_sequence([&](const OperationSequence& sequence) {
    if (!first) first = sequencer_.broken(sequence.number);
  });
  return first;
}

void Communicator::abort(const std::exception_ptr& cause) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (aborted_ || closed_) return;
    aborted_ = true;
    cause_ = cause;
  }
  for_each_sequence(
      [&](const OperationSequence& sequence) { attempt([&] { sequencer_.abort(sequence.number, cause); }); });
}

void Communicator::close(const std::exception_ptr& cause) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (!aborted_) cause_ = cause;
    aborted_ = closed_ = true;
  }
  for_each_sequence([&](const OperationSequence& sequence) {
    attempt([&] { sequencer_.abort(sequence.number, cause); });
    attempt([&] { sequencer_.close(sequence.number); });
  });
}

template <class F>
void Communicator::attempt(F&& f) const noexcept {
  try {
    f();
  } catch (...) {
    report_task_error({devices_.devices().front(), StreamId::current(), std::current_exception()});
  }
}

void Communicator::report_failure(const std::exception_ptr& error) noexcept {
  try {
    {
      const std::lock_guard lock(mutex_);
      if (reported_ == error) return;
      reported_ = error;
    }
    const auto log = [](const auto& text) { log::write(LogSubsystem::Collectives, LogLevel::Error, text); };
    log([&] { return describe(error); });
    const std::string file = file_of_process(settings().get<std::string>("collectives.dump_file")).string();
    if (file.empty()) return;
    static constinit std::mutex writing;  // communicators that fail at the same time write one after the other
    const std::lock_guard lock(writing);
    std::ofstream out(file, std::ios::trunc);
    out << "[" << recorders_to_json() << "]\n";
    if (!out.flush()) {
      const std::string text = "cannot write the flight recorders to '" + file + "'";
      log([&] { return text; });
      if (!cox::log::enabled(LogSubsystem::Collectives, LogLevel::Error))
        std::fputs(("coxswain: " + text + "\n").c_str(), stderr);
    }
  } catch (...) {
    report_task_error({devices_.devices().front(), StreamId::current(), std::current_exception()});
  }
}

std::string Communicator::recorders_to_json() const {
  detail::DeadlineWatch<NcclCommunicator>::of_process().for_each([](NcclCommunicator& nccl) { nccl.poll(); });
  std::string json;
  for_each_sequence(
      [&](const OperationSequence& sequence) { json += (json.empty() ? "" : ",\n") + sequence.recorder->to_json(); });
  return json;
}

}  // namespace cox
