#include <coxswain/runtime/communication/membership_epoch.hpp>

#include <atomic>

namespace cox {
namespace {

constinit std::atomic<std::uint64_t> epoch{0};

}  // namespace

// Acquire pairs with the release in begin_next(): a thread that has seen the later state of a device cannot read an
// earlier epoch.
MembershipEpoch MembershipEpoch::current() noexcept { return {epoch.load(std::memory_order_acquire)}; }

MembershipEpoch MembershipEpoch::begin_next() noexcept { return {epoch.fetch_add(1, std::memory_order_acq_rel) + 1}; }

}  // namespace cox
