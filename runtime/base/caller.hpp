#pragma once

#include <coxswain/device_handle/base/stream_id.hpp>

#include <source_location>

namespace cox {

/// The origin of a request to a server: the stream that the operation belongs to, and the line of the user's source
/// that made the call. An error that surfaces later names this line.
struct Caller {
  StreamId stream = StreamId::current();
  std::source_location site = std::source_location::current();
};

}  // namespace cox
