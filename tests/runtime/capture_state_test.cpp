#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/client/capture_state.hpp>
#include <coxswain/runtime/error/server_error.hpp>

#include <string>

using cox::CaptureState;
using cox::ServerError;
using cox::test::kind_of;
using cox::test::message_of;
using State = CaptureState::State;
using Call = CaptureState::Call;

namespace {

const cox::Location place{{.type = 1, .index = 2}, cox::StreamId{9}};

CaptureState in(State state) {
  CaptureState capture(place);
  if (state != State::NoCapture) capture.advance(Call::Prepare);
  if (state == State::Capture) capture.advance(Call::Start);
  return capture;
}

struct Case {
  State state;
  Call call;
  State after;
  const char* error;  // empty: allowed
};

constexpr Case cases[]{
    {State::NoCapture, Call::Prepare, State::Prepare, ""},
    {State::NoCapture, Call::Start, State::NoCapture,
     "graph_start_capture is out of order: cuda:2, stream 9 captures no graph; expected "
     "graph_prepare"},
    {State::NoCapture, Call::Stop, State::NoCapture,
     "graph_stop_capture is out of order: cuda:2, stream 9 captures no graph; expected "
     "graph_prepare"},
    {State::Prepare, Call::Prepare, State::Prepare,
     "graph_prepare is out of order: cuda:2, stream 9 is prepared for a capture; expected "
     "graph_start_capture"},
    {State::Prepare, Call::Start, State::Capture, ""},
    {State::Prepare, Call::Stop, State::Prepare,
     "graph_stop_capture is out of order: cuda:2, stream 9 is prepared for a capture; expected "
     "graph_start_capture"},
    {State::Capture, Call::Prepare, State::Capture,
     "graph_prepare is out of order: cuda:2, stream 9 is capturing a graph; expected "
     "graph_stop_capture"},
    {State::Capture, Call::Start, State::Capture,
     "graph_start_capture is out of order: cuda:2, stream 9 is capturing a graph; expected "
     "graph_stop_capture"},
    {State::Capture, Call::Stop, State::NoCapture, ""},
};

}  // namespace

TEST_CASE("In each state of a capture one call goes on, the others are errors that change nothing") {
  for (const Case& each : cases) {
    CAPTURE(static_cast<int>(each.state), static_cast<int>(each.call));
    CaptureState capture = in(each.state);
    REQUIRE(capture.state() == each.state);
    CHECK(message_of([&] { capture.require(each.call); }) == each.error);
    CHECK(capture.state() == each.state);
    CHECK(message_of([&] { capture.advance(each.call); }) == each.error);
    CHECK(capture.state() == each.after);
    CHECK(capture.capturing() == (each.after == State::Capture));
  }
}

TEST_CASE("A capture call out of order is a ServerError of kind Graph with the line of the caller") {
  CaptureState capture(place);
  CHECK(kind_of<ServerError>([&] { capture.advance(Call::Stop); }) == ServerError::Kind::Graph);
  const auto here = std::source_location::current();
  try {
    capture.advance(Call::Start, here);
    FAIL("captured what was not prepared");
  } catch (const ServerError& error) {
    CHECK(error.site().line() == here.line());
  }
}
