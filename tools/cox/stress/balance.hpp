#pragma once

#include <coxswain/device_handle/base/statistics.hpp>
#include <coxswain/tools/cox/stress/tally.hpp>
#include <coxswain/tools/cox/stress/truth.hpp>

#include <cstddef>

namespace cox::stress {

/// Checks the statistics of an idle device (L2): that it has completed all accepted closures, and that its counts and
/// the canaries agree with what the clients expect. `more_fail`: more tasks may have failed than the clients expect,
/// such as collectives of a communicator that no longer exists.
void check_balance(Truth& truth, std::size_t device, const Tally& expected, const Statistics& counted, bool more_fail);

}  // namespace cox::stress
