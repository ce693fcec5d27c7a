#include <coxswain/servers/cuda/driver/operation_history.hpp>

#include <coxswain/tests/support/catch.hpp>

using cox::StreamId;
using cox::detail::OperationHistory;

TEST_CASE("The suspects of a stream are what is not known to be complete, oldest first") {
  OperationHistory history;
  history.note(1, {"write", nullptr, std::source_location::current()}, StreamId{4});
  history.note(2, {"launch", "scale", std::source_location::current()}, StreamId{4});
  history.note(3, {nullptr, nullptr, std::source_location::current()}, StreamId{4});  // cannot be the culprit
  history.note(4, {"launch", "add", std::source_location::current()}, StreamId{5});
  const auto all = history.after(0, 4, 8);
  REQUIRE(all.size() == 3);
  CHECK(all[0].name == "write");
  CHECK(all[1].name == "launch of scale");
  CHECK(all[2].stream == StreamId{5});
  CHECK(all[1].site.find("operation_history_test.cpp:") != std::string::npos);
  CHECK(history.after(2, 4, 8).size() == 1);
  CHECK(history.after(0, 4, 2).size() == 2);
  CHECK(history.after(4, 4, 8).empty());
}

TEST_CASE("L7: a history keeps the last operations, and does not take them for older ones") {
  OperationHistory history;
  const std::uint64_t count = 3 * OperationHistory::kept;
  for (std::uint64_t i = 1; i <= count; ++i)
    history.note(i, {"launch", nullptr, std::source_location::current()}, StreamId{1});
  const auto kept = history.after(0, count, count);
  REQUIRE(kept.size() == OperationHistory::kept);
  CHECK(kept.front().position == count - OperationHistory::kept + 1);
}
