#include <coxswain/collectives/world/mark_exchange.hpp>

#include <coxswain/collectives/leader/follower.hpp>
#include <coxswain/collectives/nccl/nccl_communicator.hpp>
#include <coxswain/device_handle/base/task_error.hpp>

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>

namespace cox::detail::world {
namespace {

OperationOfAll name_of(const SharedSequence& sequence, std::uint64_t operation) {
  const auto devices = sequence.communicator.devices.devices();
  return {.devices = {devices.begin(), devices.end()},
          .epoch = sequence.communicator.epoch,
          .direction = direction_of(sequence),
          .operation = operation};
}

SharedSequence sequence_of(const OperationOfAll& operation) {
  SharedSequence sequence{{.devices = CommunicationId(operation.devices, {}), .epoch = operation.epoch}, std::nullopt};
  if (operation.direction != Direction{})
    sequence.transfer = TransferRanks{.from = operation.direction.from, .to = operation.direction.to};
  return sequence;
}

}  // namespace

void MarkExchange::share_plan(const SharedCommunicator& communicator, std::span<const std::byte> plan) {
  send_(Share{.of = name_of({communicator, TransferRanks::of_creation()}, 1), .bytes = {plan.begin(), plan.end()}});
}

void MarkExchange::mark(const SharedSequence& sequence, std::uint64_t operation, const std::exception_ptr& why,
                        UniqueFunction<void()> noted) noexcept {
  try {
    Mark mark{.id = 0, .of = name_of(sequence, operation), .kind = kind_of(why), .text = describe_cause(why)};
    {
      const std::lock_guard lock(mutex_);
      if (!is_lost_) {
        UniqueFunction<void()>& place = pending_[last_ + 1];
        std::swap(place, noted);
        mark.id = ++last_;
      }
    }
    if (mark.id != 0) return send_(std::move(mark));
  } catch (...) {  // no memory: the other processes notice by their deadlines
  }
  if (noted) noted();
}

bool MarkExchange::handle(const Message& message) {
  if (const auto* const share = std::get_if<Share>(&message)) {
    if (const auto plan = NcclCreationPlan::decode(share->bytes))
      NcclCommunicator::receive_plan(sequence_of(share->of).communicator, *plan);
    return true;
  }
  if (const auto* const mark = std::get_if<Mark>(&message)) {
    NcclCommunicator::receive_mark(sequence_of(mark->of), mark->of.operation, collective_error(mark->kind, mark->text),
                                   [this, id = mark->id] { send_(MarkNoted{.id = id}); });
    return true;
  }
  if (const auto* const noted = std::get_if<MarkNoted>(&message)) {
    UniqueFunction<void()> then;
    {
      const std::lock_guard lock(mutex_);
      if (const auto found = pending_.find(noted->id); found != pending_.end()) {
        then = std::move(found->second);
        pending_.erase(found);
      }
      if (pending_.empty()) noted_.notify_all();
    }
    if (then) then();
    return true;
  }
  return false;
}

void MarkExchange::wait_until_noted(std::chrono::steady_clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  noted_.wait_until(lock, deadline, [this] { return pending_.empty(); });
}

void MarkExchange::lose_all() noexcept {
  std::map<std::uint64_t, UniqueFunction<void()>> pending;
  {
    const std::lock_guard lock(mutex_);
    is_lost_ = true;
    pending.swap(pending_);
    noted_.notify_all();
  }
  for (auto& [id, noted] : pending)
    if (noted) noted();
}

}  // namespace cox::detail::world
