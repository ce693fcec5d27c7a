#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/profile/profile_table.hpp>

#include <chrono>

using namespace std::chrono_literals;
using cox::ProfileTable;
using cox::rounded_duration;

TEST_CASE("A profile table adds up by name, the longest total first, with a total and shares") {
  ProfileTable table(10);
  CHECK(table.empty());
  CHECK(table.to_string().empty());
  table.add("copy", 250us);
  table.add("matmul", 1ms);
  table.add("copy", 250us);
  table.add("add", 500us);
  table.add("copy", 0us);
  CHECK(table.to_string() ==
        "| Name   |  Duration | Num Computed |    Ratio |\n"
        "| matmul |   1.00 ms |            1 |  50.00 % |\n"
        "| add    | 500.00 us |            1 |  25.00 % |\n"
        "| copy   | 500.00 us |            3 |  25.00 % |\n"
        "| Total  |   2.00 ms |            5 | 100.00 % |\n");
}

TEST_CASE("L7: a profile table has a bounded number of rows, and says what it left out") {
  ProfileTable table(1);
  table.add("kept", 5ns);
  table.add("one too many", 5ns);
  table.count_omitted();
  table.add("kept", 6ns);
  CHECK(table.to_string() ==
        "| Name     | Duration | Num Computed |    Ratio |\n"
        "| kept     |    11 ns |            2 | 100.00 % |\n"
        "| Total    |    11 ns |            2 | 100.00 % |\n"
        "| Left out |        - |            2 |        - |\n");
}

TEST_CASE("A profile table of no time at all has no shares") {
  ProfileTable table(1);
  table.add("nothing", 0ns);
  CHECK(table.to_string() ==
        "| Name    | Duration | Num Computed | Ratio |\n"
        "| nothing |     0 ns |            1 |     - |\n"
        "| Total   |     0 ns |            1 |     - |\n");
}

TEST_CASE("Durations are rounded for readers in the unit that fits") {
  CHECK(rounded_duration(0ns) == "0 ns");
  CHECK(rounded_duration(999ns) == "999 ns");
  CHECK(rounded_duration(1000ns) == "1.00 us");
  CHECK(rounded_duration(12'345ns) == "12.35 us");
  CHECK(rounded_duration(999'994ns) == "999.99 us");
  CHECK(rounded_duration(999'996ns) == "1.00 ms");
  CHECK(rounded_duration(999'996us) == "1.00 s");
  CHECK(rounded_duration(90s) == "90.00 s");
}
