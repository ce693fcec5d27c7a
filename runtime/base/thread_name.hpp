#pragma once

#include <string>

namespace cox::detail {

/// Names the calling thread for debuggers and profilers; the system keeps the first 15 characters.
void name_this_thread(const std::string& name) noexcept;

}  // namespace cox::detail
