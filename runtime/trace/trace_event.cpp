#include <coxswain/runtime/trace/trace_event.hpp>

#include <coxswain/device_handle/queue/platform.hpp>

#include <cstddef>

namespace cox::trace {
namespace {

constexpr std::array category_names{"task", "stream", "collective", "memory", "client"};
static_assert(category_names.size() == static_cast<std::size_t>(Category::Client) + 1);

constexpr std::array outcome_names{"completed", "failed", "cancelled", "expired"};
static_assert(outcome_names.size() == static_cast<std::size_t>(Outcome::Expired) + 1);

}  // namespace

Track Track::this_thread() noexcept {
  thread_local const std::uint32_t number = this_thread_number();
  return {.kind = Kind::Thread, .id = number};
}

const char* to_string(Category category) noexcept { return category_names[static_cast<std::size_t>(category)]; }
const char* to_string(Outcome outcome) noexcept { return outcome_names[static_cast<std::size_t>(outcome)]; }

}  // namespace cox::trace
