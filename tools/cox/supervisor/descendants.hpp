#pragma once

#include <sys/types.h>
#include <vector>

namespace cox::tools {

/// Makes this process the parent of every descendant whose own parent ends, so that they can be found and waited for.
/// Throws std::system_error.
void adopt_orphans();
/// The processes whose parent is this one, ended ones included. Throws std::system_error if /proc cannot be read.
[[nodiscard]] std::vector<pid_t> children_of_this_process();
/// Kills all children of this process but those in `others`, and reaps those that have ended. Returns whether none is
/// left; those that become children when their parent ends are found by the next call. Does not block. Throws as
/// children_of_this_process().
[[nodiscard]] bool kill_children(const std::vector<pid_t>& others);
/// Reaps children that have ended, except `other`. Does not block.
void reap_children(pid_t other);

}  // namespace cox::tools
