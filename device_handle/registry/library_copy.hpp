#pragma once

#include <string>

namespace cox::detail {

/// The static library may be linked into several shared libraries of one process (Python modules, plugins), which then
/// have a registry of devices each. Two registries would start two threads for one device, against law L1. So the first
/// copy that opens a device has the process for as long as it is loaded, and the others refuse to open any.
///
/// Every program and shared library that contains this code has an ELF note that leads to its flag, and the dynamic
/// linker lists them all: also those opened with RTLD_LOCAL, whose symbols no other can see.
///
/// Marks this copy as the one in use, unless another is. Returns the file of that other copy ("the program" for the
/// main program), or an empty text. Any thread. Takes the dynamic linker's lock.
[[nodiscard]] std::string other_copy_in_use();

}  // namespace cox::detail
