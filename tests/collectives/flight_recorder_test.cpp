#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/failing_allocation.hpp>

#include <coxswain/collectives/watch/flight_recorder.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>

#include <nlohmann/json.hpp>

#include <array>
#include <chrono>
#include <cstdint>
#include <exception>
#include <utility>

using namespace cox;
using nlohmann::json;

namespace {

constexpr std::array devices{DeviceId{.type = 0, .index = 0}, DeviceId{.type = 0, .index = 3}};

FlightRecorder recorder_of(std::size_t capacity) {
  return {"7", CommunicationId(devices), capacity, std::chrono::seconds(60)};
}

FlightRecorder::Time at(int nanoseconds) { return FlightRecorder::Time(std::chrono::nanoseconds(nanoseconds)); }

std::exception_ptr error(CollectiveError::Kind kind) {
  return std::make_exception_ptr(CollectiveError(kind, "\"why\""));
}

json dump(const FlightRecorder& recorder) { return json::parse(recorder.to_json()); }

}  // namespace

TEST_CASE("The flight recorder's dump has the fields of PyTorch's") {
  FlightRecorder recorder = recorder_of(8);
  const CollectiveRequest request{
      .operation = CollectiveOperation::AllGather, .element_type = ElementType::BF16, .count = 5};
  recorder.submitted(1, 0, {request}, at(10));
  recorder.submitted(1, 1, {request, {}, {}}, at(20));
  recorder.released(1, 1, at(30));
  recorder.started(1, 1, at(40));
  recorder.completed(1, 1, at(50));
  const json all = dump(recorder);
  CHECK(all["pg_config"]["7"]["ranks"] == "[0, 1]");
  CHECK(all["pg_status"]["7"]["last_enqueued_collective"] == 1);
  CHECK(all["pg_status"]["7"]["last_completed_collective"] == 1);
  REQUIRE(all["entries"].size() == 2);
  const json& waits = all["entries"][0];
  CHECK(waits["state"] == "scheduled");
  CHECK(waits["time_created_ns"] == 10);
  CHECK(waits["time_released_ns"].is_null());
  CHECK(waits["time_discovered_started_ns"].is_null());
  CHECK(waits["retired"] == false);
  CHECK(waits["group_size"] == 1);
  CHECK(waits["is_p2p"] == false);
  const json& done = all["entries"][1];
  CHECK(done["pg_name"] == "7");
  CHECK(done["process_group"][0] == "7");
  CHECK(done["collective_seq_id"] == 1);
  CHECK(done["profiling_name"] == "cox:all_gather");
  CHECK(done["rank"] == 1);
  CHECK(done["group_size"] == 3);
  CHECK(done["device"] == devices[1].to_string());
  CHECK(done["input_sizes"] == json({{5}}));
  CHECK(done["output_sizes"] == json({{10}}));
  CHECK(done["input_dtypes"] == json({"bf16"}));
  CHECK(done["root"].is_null());
  CHECK(done["timeout_ms"] == 60000);
  CHECK(done["state"] == "completed");
  CHECK(done["time_released_ns"] == 30);
  CHECK(done["time_discovered_started_ns"] == 40);
  CHECK(done["time_discovered_completed_ns"] == 50);
  CHECK(done["retired"] == true);
  CHECK(done["frames"][0]["line"] == request.caller.site.line());
}

TEST_CASE("The flight recorder tells apart what failed, what timed out and what runs") {
  FlightRecorder recorder = recorder_of(8);
  CHECK(dump(recorder)["pg_status"]["7"]["last_enqueued_collective"] == -1);
  for (std::uint64_t sequence = 1; sequence <= 3; ++sequence)
    recorder.submitted(sequence, 0, {{.operation = CollectiveOperation::Barrier}});
  recorder.failed(1, 0, error(CollectiveError::Kind::Aborted));
  recorder.failed(2, 0, error(CollectiveError::Kind::Timeout));
  recorder.started(3, 0);
  const json entries = dump(recorder)["entries"];
  REQUIRE(entries.size() == 3);
  CHECK(entries[0]["state"] == "failed");
  CHECK(entries[0]["error"] == "\"why\"");
  CHECK(entries[1]["state"] == "timed_out");
  CHECK(entries[2]["state"] == "started");
  CHECK(entries[2]["error"].is_null());
  CHECK(entries[2]["input_sizes"].empty());
}

TEST_CASE("L7: the flight recorder keeps the last operations, and a rank far behind does not bring old ones back") {
  FlightRecorder recorder = recorder_of(4);
  for (std::uint64_t sequence = 1; sequence <= 10; ++sequence) recorder.submitted(sequence, 0, {CollectiveRequest{}});
  recorder.submitted(2, 1, {CollectiveRequest{}});
  recorder.completed(2, 1);
  recorder.submitted(7, 1, {CollectiveRequest{}});
  recorder.completed(10, 1);  // That rank never asked for it.
  const json entries = dump(recorder)["entries"];
  REQUIRE(entries.size() == 5);
  CHECK(entries[0]["collective_seq_id"] == 7);
  CHECK(entries[1]["collective_seq_id"] == 7);
  CHECK(entries[1]["rank"] == 1);
  CHECK(entries[4]["collective_seq_id"] == 10);
  CHECK(entries[4]["state"] == "scheduled");
}

TEST_CASE("The flight recorder says of a transfer that it is one, and with whom") {
  FlightRecorder recorder = recorder_of(1);
  recorder.submitted(1, 0, {{.operation = CollectiveOperation::Send, .count = 2, .root = 1}});
  const json entry = dump(recorder)["entries"][0];
  CHECK(entry["is_p2p"] == true);
  CHECK(entry["profiling_name"] == "cox:send");
  CHECK(entry["root"] == 1);
}

TEST_CASE("The flight recorder records without an allocation") {
  FlightRecorder recorder = recorder_of(2);
  const CollectiveRequests group{CollectiveRequest{}, CollectiveRequest{}};
  const std::exception_ptr aborted = error(CollectiveError::Kind::Aborted);
  const long before = test::live_blocks();
  test::allocations_until_failure = 0;
  for (std::uint64_t sequence = 1; sequence <= 5; ++sequence) {
    recorder.submitted(sequence, 1, group);
    recorder.released(sequence, 1);
    recorder.started(sequence, 1);
    recorder.completed(sequence, 1);
    recorder.failed(sequence, 1, aborted);
  }
  const int left = std::exchange(test::allocations_until_failure, -1);
  CHECK(left == 0);  // Nothing was counted down.
  CHECK(test::live_blocks() == before);
  CHECK(dump(recorder)["entries"].size() == 2);
}
