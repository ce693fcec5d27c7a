#pragma once

#include <coxswain/device_handle/base/unique_function.hpp>
#include <coxswain/runtime/buffer/recorded_work.hpp>
#include <coxswain/runtime/communication/membership_epoch.hpp>

namespace cox::detail {

class HostDevice;
class HostStream;

/// What a replay that was called in that epoch does between two parts. Device thread. Throws what hinders it.
using HostInterlude = UniqueFunction<void(HostDevice&, HostStream&, MembershipEpoch)>;

/// What a graph of a host device is: each step is called by every replay, in the work of the stream.
using HostGraph = RecordedWork<UniqueFunction<void()>, HostInterlude>;

}  // namespace cox::detail
