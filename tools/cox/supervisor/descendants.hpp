#pragma once

#include <sys/types.h>
#include <functional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

namespace cox::tools {

/// Makes this process the parent of every descendant whose own parent ends, so that they can be found and waited for.
/// Throws std::system_error.
void adopt_orphans();
/// The processes whose parent is this one, ended ones included. Throws std::system_error if /proc cannot be read.
[[nodiscard]] std::vector<pid_t> children_of_this_process();
/// Kills all children of this process but those that `is_spared`, and reaps those that have ended. Returns whether none
/// is left; those that become children when their parent ends are found by the next call. Does not block. Throws as
/// children_of_this_process().
[[nodiscard]] bool kill_children(const std::function<bool(pid_t)>& is_spared);
/// Calls kill_children() until none is left, and `wait` in between, which blocks for a moment; stops when that returns
/// false. Returns whether none is left. Reports on `err` if it takes long; `program`: its name there.
[[nodiscard]] bool end_children(const std::function<bool(pid_t)>& is_spared, const std::string& program,
                                std::ostream& err, const std::function<bool()>& wait);
/// Reaps children that have ended, up to the first one in `others`, which are left to their owners. Does not block.
void reap_children(const std::vector<pid_t>& others);
/// Whether the process has begun to end: the kernel closes its files, or it has ended and is not reaped. The peers of
/// its connections can be notified, and end, before it can be reaped. False if that is not known.
[[nodiscard]] bool is_ending(pid_t process);
/// Whether the process was started with this value of an environment variable, as it and its forks keep it. False if it
/// has ended, or if its environment cannot be read.
[[nodiscard]] bool was_started_with(pid_t process, std::string_view variable, std::string_view value);

}  // namespace cox::tools
