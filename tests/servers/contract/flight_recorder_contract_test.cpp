// What the flight recorders show of operations on devices, asked for and after a failure.

#include <coxswain/tests/servers/contract/fleet.hpp>
#include <coxswain/tests/servers/contract/ranks.hpp>
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/temporary_file.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <fstream>
#include <future>
#include <span>
#include <string>
#include <utility>
#include <vector>

using namespace cox;
using namespace cox::test;
using nlohmann::json;

namespace {

/// Sets collectives.dump_file for the test.
class DumpFile {
 public:
  explicit DumpFile(const std::string& path) { set_settings({{"collectives.dump_file", path}}); }
  DumpFile(const DumpFile&) = delete;
  DumpFile& operator=(const DumpFile&) = delete;
  ~DumpFile() { reset_settings({"collectives.dump_file"}); }
};

json content_of(const std::string& path) { return json::parse(std::ifstream(path)); }

std::size_t count_of(const std::vector<json>& entries, const char* field, const json& value) {
  return static_cast<std::size_t>(
      std::ranges::count_if(entries, [&](const json& entry) { return entry.at(field) == value; }));
}

}  // namespace

TEMPLATE_TEST_CASE("The flight recorders show what is done, and which rank waits for which", "", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 3);
  TestType fleet(3);
  const CommunicationId all(fleet.devices());
  fleet.for_each([&](std::size_t, auto& client) { static_cast<void>(Sum(client, all, 100)); });
  fleet.for_each([&](std::size_t, auto& client) { client.barrier(all); });  // what NCCL creates has been created
  fleet.for_each([&](std::size_t, auto& client) { settle(client); });
  fleet[0].barrier(all);
  fleet[2].barrier(all);
  fleet.for_each([](std::size_t, auto& client) { client.device_handle().submit_blocking([](auto&) {}); });
  const auto entries = recorded_operations();
  REQUIRE(entries.size() == 8);
  REQUIRE(count_of(entries, "state", "completed") == 6);
  for (std::size_t i = 6; i < 8; ++i) {  // rank 1 is not there
    REQUIRE(entries[i].at("state") == "scheduled");
    REQUIRE(entries[i].at("profiling_name").template get<std::string>().find("barrier") != std::string::npos);
    REQUIRE(entries[i].at("rank") == (i == 6 ? 0 : 2));
  }
  fleet[1].barrier(all);
  fleet.for_each([&](std::size_t, auto& client) { settle(client); });
  REQUIRE(count_of(recorded_operations(), "state", "completed") == 9);
}

TEMPLATE_TEST_CASE("The flight recorders show operations that have begun, and those that wait on a device", "",
                   COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  TestType fleet(2);
  std::vector<Sum> first;  // what the communicator opens has been opened
  fleet.for_each([&](std::size_t, auto& client) { first.emplace_back(client, fleet.devices(), 100); });
  fleet.for_each([&](std::size_t rank, auto& client) { REQUIRE(first[rank].right(client)); });
  typename TestType::Hold hold;
  hold.launch(fleet[1]);
  hold.wait_until_entered();
  const Sum sums[] = {{fleet[0], fleet.devices(), 100}, {fleet[1], fleet.devices(), 100}};
  fleet.for_each([](std::size_t, auto& client) { client.device_handle().submit_blocking([](auto&) {}); });
  const auto entries = recorded_operations();
  REQUIRE(entries.size() == 4);
  for (const json& entry : std::span(entries).last(2)) {
    REQUIRE_FALSE(entry.at("time_released_ns").is_null());
    REQUIRE(entry.at("time_discovered_completed_ns").is_null());
    if (TestType::starts_when_given) continue;
    REQUIRE(entry.at("state") == "scheduled");
    REQUIRE(entry.at("time_discovered_started_ns").is_null());
  }
  hold.open();
  fleet.for_each([&](std::size_t rank, auto& client) { REQUIRE(sums[rank].right(client)); });
}

TEMPLATE_TEST_CASE("A failure writes the flight recorders to the file that is set", "", COX_FLEETS) {
  const TemporaryFile file("");
  const DumpFile dump(file.path());
  const CollectiveTimeout timeout(std::chrono::milliseconds(20));
  COX_REQUIRE_FLEET(TestType, 2);
  TestType fleet(2);
  const CommunicationId all(fleet.devices());
  SECTION("a missing rank") {
    const Sum sum(fleet[0], all, 100);
    REQUIRE(kinds_of(failures_of(fleet[0])) == std::vector{Kind::Timeout});
    const json entry = content_of(file.path()).at(0).at("entries").at(0);
    REQUIRE(entry.at("state") == "timed_out");
    REQUIRE(entry.at("rank") == 0);
    REQUIRE(entry.at("error").template get<std::string>().find("is missing") != std::string::npos);
  }
  SECTION("a mismatch") {
    reset_settings({"collectives.timeout"});  // rank 1 compiles a kernel before it asks
    fleet[0].barrier(all);
    const Sum sum(fleet[1], all, 100);
    fleet.for_each(
        [&](std::size_t, auto& client) { REQUIRE(kinds_of(failures_of(client)) == std::vector{Kind::Mismatch}); });
    const json entries = content_of(file.path()).at(0).at("entries");
    REQUIRE(entries.size() == 2);
    for (const json& entry : entries) REQUIRE(entry.at("state") == "failed");
  }
  SECTION("a shutdown, which closes the communicator") {
    reset_settings({"collectives.timeout"});
    const CommunicationId pair{fleet.devices()[0], fleet.devices()[1]};
    fleet[0].ensure_init_collective(pair);
    std::vector<Sum> first;  // what that opens has been opened
    fleet.for_each([&](std::size_t, auto& client) { first.emplace_back(client, pair, 100); });
    fleet.for_each([&](std::size_t rank, auto& client) { REQUIRE(first[rank].right(client)); });
    const Sum sum(fleet[0], pair, 100);
    reach(fleet[0]);
    shutdown(fleet.devices()[1]);
    REQUIRE(kinds_of(failures_of(fleet[0])) == std::vector{Kind::Aborted});
    REQUIRE(content_of(file.path()).at(0).at("entries").back().at("state") == "failed");
  }
}

TEMPLATE_TEST_CASE("The flight recorders can be dumped at any time, as communicators come and go", "", COX_FLEETS) {
  COX_REQUIRE_FLEET(TestType, 2);
  TestType fleet(2);
  std::atomic<bool> over{false};
  auto dumps = std::async(std::launch::async, [&] {
    bool valid = true;
    do {
      valid = valid && json::accept(dump_flight_recorders());
    } while (!over);
    return valid;
  });
  try {
    for (std::size_t round = 0; round < 20; ++round) {
      const Sum first(fleet[0], fleet.devices(), 10);
      const Sum second(fleet[1], fleet.devices(), 10);
      static_cast<void>(fleet[0].to_client(first.source, fleet[1], ElementType::I32));
      settle(fleet[0]);
      settle(fleet[1]);
      fleet.reopen(round % 2);
    }
  } catch (...) {
    over = true;
    throw;
  }
  over = true;
  REQUIRE(dumps.get());
}
