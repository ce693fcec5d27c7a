#pragma once

#include <coxswain/device_handle/base/device_id.hpp>

namespace cox {

/// Throws CallError Forked in a forked child of a process that has used the library. Any thread.
void throw_if_forked(DeviceId device);

namespace detail {
/// Whether this process is a forked child of a process that has used the library.
[[nodiscard]] bool is_forked() noexcept;
/// Marks this process as such a child. Called in the child while it has one thread.
void set_forked() noexcept;
}  // namespace detail

}  // namespace cox
