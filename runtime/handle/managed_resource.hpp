#pragma once

#include <coxswain/runtime/handle/managed_memory.hpp>

namespace cox {

/// The storage of an allocation, for direct use by code outside the library. Keeps the memory alive.
template <class Resource>
struct ManagedResource {
  Resource resource;
  ManagedMemory memory;
};

}  // namespace cox
