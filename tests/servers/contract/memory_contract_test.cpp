#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/servers/contract/compute_backend.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/device_handle/base/find_cause.hpp>
#include <coxswain/runtime/error/server_error.hpp>
#include <coxswain/runtime/memory/memory_report.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <future>
#include <source_location>
#include <string>

using namespace cox::test;
using cox::Handle;

TEMPLATE_TEST_CASE("The memory report names the lines that hold the memory, and cleanup gives back what is free", "",
                   COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device({.memory = TestType::fine_memory});
  constexpr std::size_t part = TestType::fine_memory / 64;
  const auto& client = device.client();
  const auto line = std::source_location::current().line() + 1;
  Handle kept = client.empty(part);
  Handle dropped = client.empty(16 * part);
  dropped = {};
  client.sync().get();
  const std::string here = "memory_contract_test.cpp:" + std::to_string(line);
  cox::MemoryReport report = client.memory_report();
  REQUIRE(report.by_label.at(here) == part);
  REQUIRE(report.usage.bytes_reserved >= 17 * part);
  client.memory_cleanup();
  report = client.memory_report();
  REQUIRE(report.usage.bytes_reserved < 2 * part);
  REQUIRE(report.usage.bytes_in_use == part);
}

TEMPLATE_TEST_CASE("Out of memory says who has it", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device({.memory = std::size_t{8} << 20U});
  const auto& client = device.client();
  const auto line = std::source_location::current().line() + 1;
  const Handle most = client.empty(std::size_t{6} << 20U);
  const Handle too_much = client.empty(std::size_t{4} << 20U);
  try {
    client.sync().get();
    FAIL("the second allocation cannot succeed");
  } catch (const cox::ServerError& error) {
    const auto* const full = cox::find_cause<cox::IoError>(error, cox::IoError::Kind::OutOfMemory);
    REQUIRE(full != nullptr);
    CHECK(mentions(full->what(), {"4194304 B", "memory_contract_test.cpp:" + std::to_string(line), "biggest owners"}));
    CHECK(mentions(error.what(), {"4194304 B"}));
    CHECK_FALSE(mentions(error.what(), {"biggest owners"}));  // the report is said once
  }
}

TEMPLATE_TEST_CASE("Device memory has a capacity, and is there again when it was given back", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device({.memory = TestType::min_memory, .threads = 1});
  const auto& client = device.client();
  for (int i = 0; i < 3; ++i) {
    const Handle all = client.empty(TestType::min_memory);
    client.sync().get();
  }
  REQUIRE(client.properties().memory.capacity == TestType::min_memory);
}

TEMPLATE_TEST_CASE("Cleanup waits for no kernel", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto& client = device.client();
  typename TestType::Gate gate(client);
  // Memory of every kind that is free, but known to the system.
  (void)client.reserve_staging(std::array{std::size_t{8} << 20U});
  (void)client.empty(std::size_t{64} << 20U);
  client.sync().get();
  launch(client, gate.hold());
  gate.wait_until_entered();
  client.memory_cleanup();
  std::future<cox::MemoryUsage> usage =
      std::async(std::launch::async, [other = device.on_new_stream()] { return other.memory_usage(); });
  const bool answered = usage.wait_for(std::chrono::seconds(10)) == std::future_status::ready;
  gate.open();
  CHECK(answered);
  CHECK(usage.get().number_allocs == 0);
}
