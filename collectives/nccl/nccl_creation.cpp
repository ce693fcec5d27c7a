#include <coxswain/collectives/nccl/nccl_creation.hpp>

#include <coxswain/collectives/nccl/nccl_calls.hpp>
#include <coxswain/collectives/nccl/nccl_try.hpp>
#include <coxswain/runtime/base/fnv1a.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <utility>

namespace cox::detail {
namespace {

// NCCL has no notification of the end of a creation, so it is polled.
constexpr std::chrono::milliseconds poll_interval{1};

// How much later than its consequence in NCCL a failure of another process is reported.
constexpr std::chrono::seconds cause_patience{5};

std::uint64_t checksum_of(const PeerMemoryExchange::Message& message) noexcept {
  return fnv1a({reinterpret_cast<const char*>(message.data()), message.size()});
}

}  // namespace

NcclCreation::NcclCreation(std::vector<int> ranks, std::size_t world_size, const char* name,
                           std::shared_ptr<NcclDeviceResources> opened)
    : ranks_(std::move(ranks)),
      world_size_(world_size),
      name_(name),
      opened_(std::move(opened)),
      comms_(ranks_.size()) {}

// A split that is in progress ends with the abort of its parent, and NCCL does not write the child after that. So the
// parents of ranks without a child are aborted first.
void NcclCreation::abort() noexcept {
  {
    const std::lock_guard lock(mutex_);
    revocable_.clear();
  }
  try {
    std::vector<NcclComm> first;
    std::vector<NcclComm> last;
    for (const Comms& comms : comms_) (comms.child == nullptr ? first : last).push_back(comms.parent);
    abort_communicators(first);
    abort_communicators(children());
    abort_communicators(last);
  } catch (...) {  // no memory: one by one
    for (const Comms& comms : comms_)
      for (NcclComm comm : {comms.child, comms.parent})
        if (comm != nullptr) COX_NCCL_CHECK(nullptr, abort(comm));
  }
  for (Comms& comms : comms_) comms = {};
}

std::string NcclCreation::why_not() {
  const Nccl& library = nccl();
  if (library.split != nullptr) return {};
  return "NCCL " + nccl_version_text(library.version) +
         " has no ncclCommSplit, which communicators of several processes need; 2.18 has it";
}

NcclUniqueId NcclCreation::make_id() {
  NcclUniqueId id;
  COX_NCCL_TRY(nullptr, get_unique_id(&id));
  return id;
}

NcclCreationPlan::Encoded NcclCreationPlan::encode() const noexcept {
  Encoded bytes{};
  std::ranges::copy(std::as_bytes(std::span(id.bytes)), bytes.begin());
  bytes.back() = static_cast<std::byte>(ctas);
  return bytes;
}

std::optional<NcclCreationPlan> NcclCreationPlan::decode(std::span<const std::byte> bytes) noexcept {
  constexpr int most_ctas = 64;
  if (bytes.size() != encoded_size || std::to_integer<int>(bytes.back()) > most_ctas) return std::nullopt;
  NcclCreationPlan plan{.id = {}, .ctas = std::to_integer<int>(bytes.back())};
  std::ranges::copy(bytes.first(sizeof(NcclUniqueId)), std::as_writable_bytes(std::span(plan.id.bytes)).begin());
  return plan;
}

void NcclCreation::create(const NcclCreationPlan& plan) {
  NcclConfig parents = launch_config(1, name_);
  parents.blocking = 0;
  wait_until([] { return true; });  // throws if it was cancelled before
  const auto in_group = [&](const auto& call) {
    COX_NCCL_TRY(nullptr, group_start());
    try {
      for (std::size_t rank = 0; rank < comms_.size(); ++rank) {
        const std::shared_ptr<void> current = opened_->make_current(rank);
        const NcclResult result = call(rank);
        if (result != NcclResult::Success && result != NcclResult::InProgress)
          throw_nccl_error(result, nullptr, name_, std::source_location::current());
      }
    } catch (...) {
      static_cast<void>(nccl().group_end());  // it would return the same error
      throw;
    }
    const NcclResult result = nccl().group_end();
    if (result != NcclResult::Success && result != NcclResult::InProgress)
      throw_nccl_error(result, nullptr, "group_end()", std::source_location::current());
    settle_parents();
  };
  in_group([&](std::size_t rank) {
    return nccl().init_rank(&comms_[rank].parent, static_cast<int>(world_size_), plan.id, ranks_[rank], &parents);
  });
  NcclConfig children_config = launch_config(plan.ctas, name_);
  in_group([&](std::size_t rank) {
    return nccl().split(comms_[rank].parent, 0, ranks_[rank], &comms_[rank].child, &children_config);
  });
  {
    const std::lock_guard lock(mutex_);
    if (cause_ != nullptr) std::rethrow_exception(cause_);
    revocable_ = children();
  }
  begin_connecting(children(), world_size_, *opened_);
  for (std::size_t rank = 0; rank < comms_.size(); ++rank) wait_until([&] { return opened_->is_idle(rank); });
  share_memory();
  const std::lock_guard lock(mutex_);
  revocable_.clear();
  if (cause_ != nullptr) std::rethrow_exception(cause_);
}

void NcclCreation::share_memory() {
  PeerMemoryExchange* const exchange = opened_->exchange();
  if (exchange == nullptr) return;
  messages_.resize(comms_.size());
  for (std::size_t rank = 0; rank < comms_.size(); ++rank) messages_[rank] = exchange->message(rank);
  if (!exchange->begin(exchange_messages(*exchange))) return;
  std::optional<bool> has_access;
  wait_until([&] { return (has_access = exchange->advance()).has_value(); });
  for (PeerMemoryExchange::Message& answer : messages_) answer = {static_cast<std::byte>(*has_access)};
  exchange->end(std::ranges::all_of(exchange_messages(*exchange),
                                    [](const auto& answer) { return answer.front() == std::byte{1}; }));
}

// Of bytes that only one rank has set, the largest of all ranks is the one that was set. If another process aborts its
// communicators meanwhile, the result may be anything.
std::vector<PeerMemoryExchange::Message> NcclCreation::exchange_messages(PeerMemoryExchange& exchange) {
  sent_.resize(comms_.size());
  for (std::size_t rank = 0; rank < comms_.size(); ++rank) {
    sent_[rank].assign(world_size_, CheckedMessage());
    sent_[rank][static_cast<std::size_t>(ranks_[rank])] = {.checksum = checksum_of(messages_[rank]),
                                                           .message = messages_[rank]};
    exchange.write(rank, std::as_bytes(std::span(sent_[rank])));
  }
  reduce_scratch(world_size_ * sizeof(CheckedMessage));
  std::vector<CheckedMessage> received(world_size_);
  exchange.read(0, std::as_writable_bytes(std::span(received)));
  std::vector<PeerMemoryExchange::Message> messages;
  for (const auto& [checksum, message] : received) {
    if (checksum != checksum_of(message)) throw_wrong_data();
    messages.push_back(message);
  }
  return messages;
}

// The cause of cancel() says more, and comes soon.
void NcclCreation::throw_wrong_data() {
  const auto end = std::chrono::steady_clock::now() + cause_patience;
  wait_until([end] { return std::chrono::steady_clock::now() >= end; });
  throw CollectiveError(CollectiveError::Kind::Backend,
                        "NCCL has returned wrong data while " + std::string(name_) +
                            " was created: another process has probably aborted it",
                        std::source_location());
}

// Reduces the first bytes of the scratch memory of all ranks of all processes.
void NcclCreation::reduce_scratch(std::size_t bytes) {
  in_nccl_group(nullptr, [&] {
    for (std::size_t rank = 0; rank < comms_.size(); ++rank) {
      void* const scratch = opened_->scratch(rank);
      COX_NCCL_TRY(nullptr, all_reduce(scratch, scratch, bytes, NcclType::Uint8, NcclReduction::Max, comms_[rank].child,
                                       opened_->stream(rank)));
    }
  });
  for (std::size_t rank = 0; rank < comms_.size(); ++rank) wait_until([&] { return opened_->is_idle(rank); });
}

void NcclCreation::settle_parents() {
  wait_until(
      [this] { return std::ranges::all_of(comms_, [this](const Comms& comms) { return has_settled(comms.parent); }); });
}

bool NcclCreation::has_settled(NcclComm comm) const {
  NcclResult result = NcclResult::Success;
  const NcclResult asked = nccl().async_error(comm, &result);
  if (asked != NcclResult::Success) result = asked;
  if (result == NcclResult::InProgress) return false;
  if (result != NcclResult::Success) throw_nccl_error(result, comm, name_, std::source_location::current());
  return true;
}

// Throws the cause of cancel().
template <class IsDone>
void NcclCreation::wait_until(const IsDone& is_done) {
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (cause_ != nullptr) std::rethrow_exception(cause_);
    }
    if (is_done()) return;
    std::unique_lock lock(mutex_);
    cancelled_.wait_for(lock, poll_interval, [this] { return cause_ != nullptr; });
  }
}

// Revokes under the lock, so that create() does not abort a child meanwhile: its thread may wait in NCCL for a rank
// that is gone, and leaves it then.
void NcclCreation::cancel(const std::exception_ptr& cause) noexcept {
  const std::lock_guard lock(mutex_);
  if (cause_ != nullptr) return;
  cause_ = cause;
  cancelled_.notify_all();
  if (nccl().revoke == nullptr) return;
  for (NcclComm child : revocable_) COX_NCCL_CHECK(child, revoke(child, 0));
}

std::vector<NcclComm> NcclCreation::children() const {
  std::vector<NcclComm> children;
  for (const Comms& comms : comms_) children.push_back(comms.child);
  return children;
}

std::vector<NcclCreation::Comms> NcclCreation::take() noexcept {
  {
    const std::lock_guard lock(mutex_);
    revocable_.clear();
  }
  return std::exchange(comms_, {});
}

}  // namespace cox::detail
