#pragma once

#include <string>
#include <string_view>

namespace cox::detail {

/// What people need to mend a kernel that does not compile:
///
///     [Compilation Error]
///      kernel.cu(3): error: identifier "foo" is undefined
///     [Source]
///        2 |   const int i = threadIdx.x;
///     >  3 |   y[i] = foo;
///        4 | }
///
/// `file` is what the log calls the source. Long logs are cut.
[[nodiscard]] std::string compilation_report(std::string_view log, std::string_view source, std::string_view file);

}  // namespace cox::detail
