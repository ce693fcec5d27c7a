#pragma once

namespace cox::detail::world {

/// Child processes do not get this descriptor of a socket: it is closed on exec, and in a forked child at once. A child
/// that kept it would keep the connection open after the end of its parent, whose peers would not notice that. Any
/// thread. The descriptor may be closed at any time.
void keep_from_children(int descriptor) noexcept;

}  // namespace cox::detail::world
