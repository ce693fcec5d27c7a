#pragma once

#include <functional>

namespace cox::detail {

/// What the calling thread does again and again while it waits for a future. A device thread may wait, inside
/// exclusive(), for what needs that thread itself: work of its server that others have left for it in the meantime. An
/// empty function: nothing. The function of a device thread stays until the thread ends.
void set_waiting_help(std::function<void()> help);

/// That of the calling thread; null: it has nothing to do.
[[nodiscard]] const std::function<void()>* waiting_help() noexcept;

}  // namespace cox::detail
