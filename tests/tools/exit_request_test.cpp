#include <coxswain/tests/support/catch.hpp>

#include <coxswain/tools/cox/supervisor/exit_request.hpp>

using cox::tools::ExitRequest;
using std::chrono::milliseconds;
using std::chrono::seconds;

TEST_CASE("A signal requests the end for some time later, and a later SIGINT to the same node at once") {
  const ExitRequest::Clock::time_point begin{};
  ExitRequest request(seconds(30));
  CHECK_FALSE(request.is_made());
  request.note(SIGTERM, begin);
  CHECK(request.kill_at() == begin + seconds(30));
  request.note(SIGTERM, begin + milliseconds(1));  // a scheduler sends it twice
  request.note(SIGTERM, begin + seconds(2));
  request.note(SIGINT, begin + milliseconds(900));
  request.note(SIGINT, begin + seconds(2), 1);  // a launcher sends it to all nodes
  request.note(SIGHUP, begin + seconds(3));
  request.note(SIGQUIT, begin + seconds(4));
  CHECK(request.kill_at() == begin + seconds(30));
  CHECK(request.lateness() == "has not ended within 30s of the signal");
  request.note(SIGINT, begin + seconds(5), 1);
  CHECK(request.kill_at() == begin + seconds(5));
  CHECK(request.lateness() == "has not ended before the second signal");
  request.note(SIGINT, begin + seconds(6));
  CHECK(request.kill_at() == begin + seconds(5));
}
