#include <coxswain/runtime/buffer/resolve_window.hpp>

#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/runtime/base/byte_count.hpp>
#include <coxswain/runtime/base/location.hpp>
#include <coxswain/runtime/error/io_error.hpp>

#include <algorithm>

namespace cox {

std::string describe_use(const MemoryWindow& window, const MemoryOwner& owner, const Caller& caller) {
  return "memory " + std::to_string(window.memory.id()) + " was used on " +
         Location{owner.device, caller.stream}.to_string();
}

void refuse_window(const MemoryWindow& window, const MemoryOwner& owner, const Caller& caller) {
  if (!window.memory)
    throw IoError(IoError::Kind::NotFound,
                  "an empty handle (moved from, or never assigned) was used on " +
                      Location{owner.device, caller.stream}.to_string(),
                  caller.site);
  const auto refuse = [&](IoError::Kind kind, const std::string& why, std::exception_ptr cause = nullptr) {
    throw IoError(kind, describe_use(window, owner, caller) + ", but " + why, caller.site, std::move(cause));
  };
  const MemoryOwner& actual = window.memory.owner();
  if (actual.device != owner.device) refuse(IoError::Kind::WrongDevice, "it belongs to " + actual.device.to_string());
  if (actual.generation != owner.generation)
    refuse(IoError::Kind::StaleHandle, "it was allocated before a shutdown of its device, which freed it");
  const MemoryState& state = window.memory.state();
  if (state.failure)
    refuse(IoError::Kind::AllocationFailed, "its allocation failed: " + describe_cause(state.failure), state.failure);
  if (state.resource == nullptr) refuse(IoError::Kind::NotFound, "it was never initialised");

  const std::size_t bytes = static_cast<const DeviceBuffer&>(*state.resource).size();
  const std::size_t size = window.size_in_used.value_or(bytes - std::min(window.offset_start, bytes));
  throw IoError(IoError::Kind::OutOfBounds,
                describe_use(window, owner, caller) + ", but a window of " + format_byte_count(size) + " at offset " +
                    format_byte_count(window.offset_start) + " exceeds its size of " + format_byte_count(bytes),
                caller.site);
}

}  // namespace cox
