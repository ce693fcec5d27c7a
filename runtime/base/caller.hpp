#pragma once

#include <coxswain/device_handle/base/stream_id.hpp>

#include <source_location>

namespace cox {

/// Who asked a server for something: the stream the operation belongs to, and the line of the user's source that made
/// the call, so that an error which surfaces later can say where it began.
struct Caller {
  StreamId stream = StreamId::current();
  std::source_location site = std::source_location::current();
};

}  // namespace cox
