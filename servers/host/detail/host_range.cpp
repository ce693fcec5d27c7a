#include <coxswain/servers/host/detail/host_range.hpp>

#include <coxswain/device_handle/task_error.hpp>
#include <coxswain/runtime/byte_count.hpp>
#include <coxswain/runtime/io_error.hpp>
#include <coxswain/runtime/server_error.hpp>

#include <string>

namespace cox::detail {

HostRange resolve(const Binding& binding, const MemoryOwner& owner, const Place& place, std::source_location site) {
  const std::string on = " on " + place.to_string();
  if (!binding.memory)
    throw IoError(IoError::Kind::NotFound, "an empty handle (moved from, or never assigned) was used" + on, site);
  const std::string name = "memory " + std::to_string(binding.memory.id());
  const MemoryOwner& actual = binding.memory.owner();
  if (actual.device != owner.device)
    throw IoError(IoError::Kind::WrongDevice, name + " of " + actual.device.to_string() + " was used" + on, site);
  if (actual.generation != owner.generation)
    throw IoError(IoError::Kind::StaleHandle,
                  name + " is from before a shutdown of its device, which freed it, and was used" + on, site);
  const MemoryState& state = binding.memory.state();
  if (state.failure)
    throw IoError(IoError::Kind::AllocationFailed,
                  name + " was used" + on + ", but its allocation failed: " + describe(state.failure), site,
                  state.failure);
  if (state.resource == nullptr)
    throw IoError(IoError::Kind::NotFound, name + " was used" + on + ", but was never initialised", site);

  // Only this server sets the resource, and only to its own kind of buffer.
  auto buffer = std::static_pointer_cast<HostBuffer>(state.resource);
  if (binding.offset_start > buffer->size() || binding.offset_end > buffer->size() - binding.offset_start ||
      binding.size != buffer->size())
    throw IoError(IoError::Kind::OutOfBounds,
                  "a window that leaves out " + format_byte_count(binding.offset_start) + " and " +
                      format_byte_count(binding.offset_end) + " of " + name + " with " +
                      format_byte_count(buffer->size()) + on,
                  site);
  std::byte* data = buffer->data() == nullptr ? nullptr : buffer->data() + binding.offset_start;
  return {std::move(buffer), data, binding.size_in_used()};
}

}  // namespace cox::detail
