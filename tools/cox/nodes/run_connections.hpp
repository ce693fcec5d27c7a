#pragma once

#include <boost/asio/io_context.hpp>

#include <chrono>
#include <optional>
#include <vector>

namespace cox::tools {

/// As wait_readable(), but also runs the handlers of the io_context, and returns when it has run any. The io_context is
/// run by no other thread. Throws what the handlers throw, and std::system_error.
void run_connections(boost::asio::io_context& io, const std::vector<int>& descriptors,
                     std::optional<std::chrono::nanoseconds> longest);

}  // namespace cox::tools
