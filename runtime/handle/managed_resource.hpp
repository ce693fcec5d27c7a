#pragma once

#include <coxswain/runtime/handle/managed_memory.hpp>

namespace cox {

/// The storage of a memory itself, for code that is not the library's; keeps the memory alive.
template <class Resource>
struct ManagedResource {
  Resource resource;
  ManagedMemory memory;
};

}  // namespace cox
