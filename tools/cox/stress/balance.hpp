#pragma once

#include <coxswain/device_handle/base/statistics.hpp>
#include <coxswain/tools/cox/stress/tally.hpp>
#include <coxswain/tools/cox/stress/truth.hpp>

#include <cstddef>

namespace cox::stress {

/// At rest, compares what a device counted with itself and with what the clients expect, and the canaries (L2).
/// `more_fail`: the device may have refused more than that, such as collectives of a communicator that is gone.
void check_balance(Truth& truth, std::size_t device, const Tally& expected, const Statistics& counted, bool more_fail);

}  // namespace cox::stress
