#include <coxswain/runtime/memory/resolve_binding.hpp>

#include <coxswain/device_handle/task_error.hpp>
#include <coxswain/runtime/byte_count.hpp>
#include <coxswain/runtime/io_error.hpp>
#include <coxswain/runtime/place.hpp>

namespace cox {

std::string describe_use(const Binding& binding, const MemoryOwner& owner, const Caller& caller) {
  return "memory " + std::to_string(binding.memory.id()) + " was used on " +
         Place{owner.device, caller.stream}.to_string();
}

DeviceBuffer& resolve_binding(const Binding& binding, const MemoryOwner& owner, const Caller& caller) {
  if (!binding.memory)
    throw IoError(
        IoError::Kind::NotFound,
        "an empty handle (moved from, or never assigned) was used on " + Place{owner.device, caller.stream}.to_string(),
        caller.site);
  const auto refuse = [&](IoError::Kind kind, const std::string& why, std::exception_ptr cause = nullptr) {
    throw IoError(kind, describe_use(binding, owner, caller) + ", but " + why, caller.site, std::move(cause));
  };
  const MemoryOwner& actual = binding.memory.owner();
  if (actual.device != owner.device) refuse(IoError::Kind::WrongDevice, "it belongs to " + actual.device.to_string());
  if (actual.generation != owner.generation)
    refuse(IoError::Kind::StaleHandle, "it is from before a shutdown of its device, which freed it");
  const MemoryState& state = binding.memory.state();
  if (state.failure)
    refuse(IoError::Kind::AllocationFailed, "its allocation failed: " + describe(state.failure), state.failure);
  if (state.resource == nullptr) refuse(IoError::Kind::NotFound, "it was never initialised");

  auto& buffer = static_cast<DeviceBuffer&>(*state.resource);
  if (binding.offset_start > buffer.size() || binding.offset_end > buffer.size() - binding.offset_start ||
      binding.size != buffer.size())
    refuse(IoError::Kind::OutOfBounds, "a window that leaves out " + format_byte_count(binding.offset_start) + " and " +
                                           format_byte_count(binding.offset_end) + " is not within its " +
                                           format_byte_count(buffer.size()));
  return buffer;
}

}  // namespace cox
