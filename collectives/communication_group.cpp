#include <coxswain/collectives/communication_group.hpp>

#include <coxswain/device_handle/task_error.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>
#include <coxswain/runtime/log.hpp>
#include <coxswain/runtime/process_settings.hpp>

#include <algorithm>
#include <array>
#include <fstream>

namespace cox {

CommunicationGroup::CommunicationGroup(Sequencer& sequencer, CommunicationId devices, std::chrono::milliseconds timeout)
    : sequencer_(sequencer),
      devices_(std::move(devices)),
      timeout_(timeout),
      number_(sequencer.open(devices_, timeout)) {}

CommunicationGroup::~CommunicationGroup() { close(); }

CommunicatorNumber CommunicationGroup::transfers(DeviceId from, DeviceId to) {
  static_cast<void>(devices_.rank_of(from));
  static_cast<void>(devices_.rank_of(to));
  const std::lock_guard lock(mutex_);
  if (closed_)
    throw CollectiveError(CollectiveError::Kind::Aborted, "communicator " + devices_.to_string() + " is closed");
  const auto [found, added] = transfers_.try_emplace({from, to});
  if (!added) return found->second;
  try {
    found->second = sequencer_.open(CommunicationId(std::array{from, to}), timeout_);
  } catch (...) {
    transfers_.erase(found);
    throw;
  }
  return found->second;
}

bool CommunicationGroup::usable() const {
  return std::ranges::all_of(numbers(), [this](CommunicatorNumber number) { return !sequencer_.broken(number); });
}

void CommunicationGroup::abort(const std::exception_ptr& cause) {
  for (const CommunicatorNumber number : numbers()) sequencer_.abort(number, cause);
}

void CommunicationGroup::close() noexcept {
  try {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    for (const CommunicatorNumber number : numbers()) sequencer_.close(number);
  } catch (...) {
    report_task_error({devices_.devices().front(), StreamId::current(), std::current_exception()});
  }
}

void CommunicationGroup::report_failure(const std::exception_ptr& error) noexcept {
  try {
    {
      const std::lock_guard lock(mutex_);
      if (reported_ == error) return;
      reported_ = error;
    }
    const auto log = [](const auto& text) { log::write(LogSubsystem::Collectives, LogLevel::Error, text); };
    log([&] { return describe(error); });
    const auto file = settings().get<std::string>("collectives.dump_file");
    if (file.empty()) return;
    std::ofstream out(file, std::ios::trunc);
    out << "[" << recorders_to_json() << "]\n";
    if (!out.flush()) log([&] { return "the flight recorders cannot be written to " + file; });
  } catch (...) {
    report_task_error({devices_.devices().front(), StreamId::current(), std::current_exception()});
  }
}

std::string CommunicationGroup::recorders_to_json() const {
  std::string json;
  for (const CommunicatorNumber number : numbers()) {
    if (!json.empty()) json += ",\n";
    json += sequencer_.recorder(number)->to_json();
  }
  return json;
}

std::vector<CommunicatorNumber> CommunicationGroup::numbers() const {
  const std::lock_guard lock(mutex_);
  std::vector<CommunicatorNumber> numbers{number_};
  for (const auto& [way, number] : transfers_) numbers.push_back(number);
  return numbers;
}

}  // namespace cox
