#include <coxswain/runtime/communication/world_process.hpp>

#include <atomic>

namespace cox {
namespace {

constinit std::atomic<std::uint16_t> own{0};

}  // namespace

std::uint16_t own_process() noexcept { return own.load(std::memory_order_acquire); }

void detail::set_own_process(std::uint16_t process) noexcept { own.store(process, std::memory_order_release); }

}  // namespace cox
