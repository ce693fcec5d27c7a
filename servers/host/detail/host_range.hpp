#pragma once

#include <coxswain/runtime/binding.hpp>
#include <coxswain/runtime/place.hpp>
#include <coxswain/servers/host/detail/host_memory.hpp>

#include <cstddef>
#include <memory>
#include <source_location>

namespace cox::detail {

/// A window of host device memory that stream work may touch; keeps the buffer alive (L11).
struct HostRange {
  std::shared_ptr<HostBuffer> buffer;
  std::byte* data = nullptr;
  std::size_t size = 0;  ///< bytes
};

/// Device thread of `owner` only. Throws IoError: NotFound (empty handle, never initialised), WrongDevice, StaleHandle,
/// AllocationFailed with its cause (L12), OutOfBounds.
[[nodiscard]] HostRange resolve(const Binding& binding, const MemoryOwner& owner, const Place& place,
                                std::source_location site);

}  // namespace cox::detail
