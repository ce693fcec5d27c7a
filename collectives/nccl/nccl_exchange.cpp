#include <coxswain/collectives/nccl/nccl_exchange.hpp>

#include <new>
#include <utility>

namespace cox::detail {
namespace {

constinit std::atomic<NcclExchange*> exchange_of_process{nullptr};
constinit thread_local MarkScope* innermost = nullptr;

}  // namespace

NcclExchange* NcclExchange::of_process() noexcept { return exchange_of_process.load(std::memory_order_acquire); }

// Release pairs with the acquire in of_process().
void NcclExchange::set_of_process(NcclExchange* exchange) noexcept {
  exchange_of_process.store(exchange, std::memory_order_release);
}

MarkScope::MarkScope() noexcept : outer_(innermost) { innermost = this; }

MarkScope::~MarkScope() {
  if (innermost == this) innermost = outer_;
  if (count_ != nullptr) count_down(std::move(count_));
}

void MarkScope::when_noted(UniqueFunction<void()> then) noexcept {
  innermost = outer_;  // the marks that follow do not count
  if (count_ == nullptr) return then();
  count_->then = std::move(then);
  count_down(std::move(count_));
}

const std::shared_ptr<MarkScope::Count>& MarkScope::count() {
  if (count_ != nullptr) return count_;
  auto made = std::make_shared<Count>();
  if (outer_ != nullptr) {
    made->outer = outer_->count();
    made->outer->left.fetch_add(1, std::memory_order_relaxed);
  }
  return count_ = std::move(made);
}

// Acquire and release: the thread that ends the count sees `then`.
void MarkScope::count_down(std::shared_ptr<Count> count) noexcept {
  while (count != nullptr && count->left.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    if (count->then) count->then();
    count = std::exchange(count->outer, nullptr);
  }
}

void MarkScope::send_mark(const SharedSequence& sequence, std::uint64_t operation,
                          const std::exception_ptr& why) noexcept {
  NcclExchange* const exchange = NcclExchange::of_process();
  if (exchange == nullptr) return;
  if (innermost == nullptr) return exchange->mark(sequence, operation, why, [] {});
  try {
    const std::shared_ptr<Count> count = innermost->count();
    UniqueFunction<void()> noted([count] { count_down(count); });
    count->left.fetch_add(1, std::memory_order_relaxed);
    exchange->mark(sequence, operation, why, std::move(noted));
  } catch (const std::bad_alloc&) {  // the mark cannot be counted
    exchange->mark(sequence, operation, why, UniqueFunction<void()>());
  }
}

}  // namespace cox::detail
