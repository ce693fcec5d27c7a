#pragma once

#include <string>

namespace cox::detail {

/// The static library may be linked into several shared libraries of one process (Python modules, plugins), and each
/// copy then has its own registry of devices. Two registries would start two threads for one device, against law L1.
/// Therefore the first copy that opens a device owns the process's devices for as long as it is loaded, and the others
/// refuse to open any.
///
/// Every program and shared library that contains this code has an ELF note that locates its flag. The dynamic linker
/// lists all of them, also those opened with RTLD_LOCAL, whose symbols are not visible to others.
///
/// Marks this copy as the one in use, unless another copy is. Returns the file of that other copy ("the program" for
/// the main program), or an empty string. Any thread. Takes the dynamic linker's lock.
[[nodiscard]] std::string other_copy_in_use();

}  // namespace cox::detail
