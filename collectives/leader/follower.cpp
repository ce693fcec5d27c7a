#include <coxswain/collectives/leader/follower.hpp>

#include <coxswain/device_handle/base/find_cause.hpp>
#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>

#include <cstdint>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace cox::detail::world {
namespace {

using Kind = CollectiveError::Kind;

std::uint64_t number_of(CommunicatorNumber number) noexcept { return static_cast<std::uint64_t>(number); }

std::optional<TransferRanks> transfer_of(Direction direction) noexcept {
  if (direction.from == all_ranks) return std::nullopt;
  return TransferRanks{.from = direction.from, .to = direction.to};
}

}  // namespace

std::exception_ptr collective_error(Kind kind, const std::string& text) noexcept {
  try {
    return std::make_exception_ptr(CollectiveError(kind, text, std::source_location()));
  } catch (...) {
    return std::current_exception();
  }
}

Kind kind_of(const std::exception_ptr& why) noexcept {
  const auto* const found = cox::find_cause<CollectiveError>(why);
  if (found == nullptr) return Kind::Aborted;
  if (found->kind() == Kind::Aborted)
    for (const Kind kind : {Kind::ProcessGone, Kind::ProcessSilent})
      if (cox::find_cause<CollectiveError>(why, kind) != nullptr) return kind;
  return found->kind();
}

Direction direction_of(const SharedSequence& sequence) noexcept {
  return sequence.transfer ? Direction{sequence.transfer->from, sequence.transfer->to} : Direction{};
}

Follower::Follower(Sequencer& sequencer, std::function<void(std::span<Message>)> send, std::function<void()> fail)
    : sequencer_(sequencer), send_(std::move(send)), fail_(std::move(fail)) {}

void Follower::open(CommunicatorNumber number, const SharedSequence& sequence,
                    std::chrono::milliseconds timeout) noexcept {
  try {
    const auto devices = sequence.communicator.devices.devices();
    send(Open{.number = number_of(number),
              .devices = {devices.begin(), devices.end()},
              .epoch = sequence.communicator.epoch,
              .direction = direction_of(sequence),
              .timeout = timeout});
  } catch (...) {
    fail_();
  }
}

void Follower::ask(const CollectiveId& operation, const CollectiveRequests& requests,
                   const CollectiveDependencies& awaited) noexcept {
  try {
    Ask ask{.number = number_of(operation.communicator),
            .operation = operation.sequence,
            .fingerprint = fingerprint(requests),
            .description = description_of(requests),
            .awaited = {}};
    if (awaited.size() > max_awaited)
      return send(Refuse{.number = ask.number,
                         .operation = ask.operation,
                         .kind = Kind::Validation,
                         .text = "it would wait for more than " + std::to_string(max_awaited) + " operations"});
    for (const CollectiveId& each : awaited) ask.awaited.push_back({number_of(each.communicator), each.sequence});
    send(std::move(ask));
  } catch (...) {
    fail_();
  }
}

void Follower::send(Message message) {
  if (batches_) {
    batch_.push_back(std::move(message));
  } else {
    send_({&message, 1});
  }
}

void Follower::end_batch() noexcept {
  batches_ = false;
  if (!batch_.empty()) send_(batch_);
  batch_.clear();
}

// Most operations of a loop come from one line, with one size.
const std::string& Follower::description_of(const CollectiveRequests& requests) {
  const CollectiveRequest& request = requests.front();
  const auto is_same = [&](const CollectiveRequest& last) {
    const std::source_location& site = request.caller.site;
    const std::source_location& its = last.caller.site;
    return last.operation == request.operation && last.element_type == request.element_type &&
           last.count == request.count && last.reduce_operation == request.reduce_operation &&
           last.root == request.root && last.tag == request.tag && its.line() == site.line() &&
           its.column() == site.column() && std::string_view(its.file_name()) == site.file_name();
  };
  if (requests.size() != 1) {
    last_.reset();
    return description_ = to_string(requests);
  }
  if (last_ && is_same(*last_)) return description_;
  last_.reset();
  description_ = to_string(requests);
  last_ = request;
  return description_;
}

void Follower::refuse(const CollectiveId& operation, const std::exception_ptr& why) noexcept {
  try {
    send(Refuse{.number = number_of(operation.communicator),
                .operation = operation.sequence,
                .kind = kind_of(why),
                .text = describe_cause(why)});
  } catch (...) {
    fail_();
  }
}

void Follower::end(const CollectiveId& from, const std::exception_ptr& why) noexcept {
  try {
    send(Break{.number = number_of(from.communicator),
               .from = from.sequence,
               .kind = kind_of(why),
               .text = describe_cause(why)});
  } catch (...) {
    fail_();
  }
}

void Follower::completed(const CollectiveId& last) noexcept {
  send(Progress{.number = number_of(last.communicator), .completed = last.sequence});
}

void Follower::close(CommunicatorNumber number) noexcept { send(Close{.number = number_of(number)}); }

bool Follower::handle(const Message& message) {
  const auto communicator = [](const std::vector<DeviceId>& devices, std::uint64_t epoch) {
    return SharedCommunicator{.devices = CommunicationId(devices, {}), .epoch = epoch};
  };
  if (const auto* const release = std::get_if<Release>(&message)) {
    return sequencer_.release({CommunicatorNumber{release->number}, release->operation});
  }
  if (const auto* const refused = std::get_if<Refused>(&message)) {
    sequencer_.refuse({CommunicatorNumber{refused->number}, refused->operation},
                      collective_error(refused->kind, refused->text));
  } else if (const auto* const broken = std::get_if<Broken>(&message)) {
    std::vector<SharedSequenceEnd> ends;
    for (const SequenceEnd& each : broken->ends)
      ends.push_back({.transfer = transfer_of(each.direction), .from = each.from});
    sequencer_.end(communicator(broken->devices, broken->epoch), ends, collective_error(broken->kind, broken->text));
  } else if (const auto* const why = std::get_if<Why>(&message)) {
    const SharedSequence sequence{communicator(why->devices, why->epoch), transfer_of(why->direction)};
    // Not by send(), which needs the sequencer's lock: a batch may have begun.
    Message answer = Answer{.question = why->question, .text = sequencer_.explain_missing(sequence, why->operation)};
    send_({&answer, 1});
  }
  return true;
}

}  // namespace cox::detail::world
