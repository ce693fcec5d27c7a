#pragma once

#include <coxswain/device_handle/base/unique_function.hpp>
#include <coxswain/runtime/buffer/recorded_work.hpp>
#include <coxswain/runtime/communication/membership_epoch.hpp>

namespace cox::detail {

class HostDevice;
class HostStream;

/// A callback of a graph that every replay calls between two parts. `MembershipEpoch`: of the call of the replay.
/// Device thread. Throws if its work cannot be queued.
using HostInterlude = UniqueFunction<void(HostDevice&, HostStream&, MembershipEpoch)>;

/// The recorded work of a graph of a host device. Every replay calls each step, as stream work.
using HostGraph = RecordedWork<UniqueFunction<void()>, HostInterlude>;

}  // namespace cox::detail
