#pragma once

namespace cox::detail::world {

/// Child processes do not get this descriptor of a socket: it is closed on exec, and in a forked child at once.
/// Otherwise the connection would stay open after the parent has ended, and other processes would not notice its end.
/// Any thread. The descriptor may be closed at any time.
void keep_from_children(int descriptor) noexcept;

}  // namespace cox::detail::world
