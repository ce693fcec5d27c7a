#pragma once

#include <string>
#include <string_view>
#include <typeinfo>

namespace cox::trace {

/// A short name for a task without a label, derived from the type that a mailbox carries: the call that submitted it
/// and the function in which its closure was written, as in "submit Loader::next". For a closure that is not a lambda,
/// its type; for the opening of a service, the service.
[[nodiscard]] std::string task_name(const std::type_info& type);

/// The short name derived from a demangled type name.
[[nodiscard]] std::string task_name(std::string_view demangled);

}  // namespace cox::trace
