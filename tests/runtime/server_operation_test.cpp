#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/error/server_operation.hpp>

using enum cox::ServerOperation;
using cox::stream_error_mode;
using cox::StreamErrorMode;

TEST_CASE("L12: what meets the device takes the errors, what only looks is refused, work goes on") {
  for (const auto operation : {Read, Flush, Sync, GraphPrepare, BeginCapture})
    CHECK(stream_error_mode(operation) == StreamErrorMode::Take);
  for (const auto operation : {MemoryUsage, MemoryReport, AllReduce})
    CHECK(stream_error_mode(operation) == StreamErrorMode::Refuse);
  for (const auto operation :
       {Launch, Write, InitializeMemory, Staging, GetResource, Replay, Send, Receive, SyncCollective, MemoryCleanup})
    CHECK(stream_error_mode(operation) == StreamErrorMode::Ignore);
}
