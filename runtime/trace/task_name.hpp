#pragma once

#include <string>
#include <string_view>
#include <typeinfo>

namespace cox::trace {

/// A short name for a task that has none, from the type that a mailbox carries: the service, what the client called,
/// and the function in which the closure was written. "Pool::submit in Loader::next()".
[[nodiscard]] std::string task_name(const std::type_info& type);

/// The same from a demangled name.
[[nodiscard]] std::string task_name(std::string_view demangled);

}  // namespace cox::trace
