#pragma once

#include <string>
#include <string_view>

namespace cox::detail {

/// The error text for a kernel that does not compile: the log, and the source lines that it names.
///
///     [Compilation Error]
///      kernel.cu(3): error: identifier "foo" is undefined
///     [Source]
///        2 |   const int i = threadIdx.x;
///     >  3 |   y[i] = foo;
///        4 | }
///
/// `file` is the name of the source in the log. Long logs are truncated.
[[nodiscard]] std::string compilation_report(std::string_view log, std::string_view source, std::string_view file);

}  // namespace cox::detail
