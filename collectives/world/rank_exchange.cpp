#include <coxswain/collectives/world/rank_exchange.hpp>

#include <atomic>

namespace cox::detail {
namespace {

constinit std::atomic<RankExchange*> exchange_of_process{nullptr};

}  // namespace

RankExchange* RankExchange::of_process() noexcept { return exchange_of_process.load(std::memory_order_acquire); }

void RankExchange::set_of_process(RankExchange* exchange) noexcept {
  exchange_of_process.store(exchange, std::memory_order_release);
}

}  // namespace cox::detail
