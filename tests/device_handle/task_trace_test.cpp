#include <coxswain/device_handle/observe/task_trace.hpp>

#include <coxswain/tests/support/catch.hpp>

#include <coxswain/device_handle/base/shutdown.hpp>
#include <coxswain/device_handle/handle/device_handle.hpp>

#include <array>
#include <future>
#include <stdexcept>
#include <string>
#include <string_view>
#include <typeinfo>
#include <vector>

using cox::CallOptions;
using cox::DeviceHandle;
using cox::Outcome;
using cox::TaskRecord;

namespace {

struct Traced {
  explicit Traced(cox::DeviceId) {}
  void on_task_error(const std::exception_ptr&, cox::StreamId) noexcept {}
};

std::vector<TaskRecord> records;  // written on one device thread, read after it has been shut down
void keep(const TaskRecord& record) noexcept { records.push_back(record); }
constexpr cox::TaskTracer keeping{.end = keep};

/// A device of which every task is kept in `records`.
class TracedDevice {
 public:
  TracedDevice() : handle_(DeviceHandle<Traced>::get({.type = 70, .index = 1})) {
    records.clear();
    cox::set_task_tracer(&keeping);
  }
  TracedDevice(const TracedDevice&) = delete;
  TracedDevice& operator=(const TracedDevice&) = delete;
  ~TracedDevice() { shutdown(); }

  void shutdown() {
    cox::shutdown(handle_.device_id());
    cox::set_task_tracer(nullptr);
  }
  DeviceHandle<Traced>* operator->() { return &handle_; }

 private:
  DeviceHandle<Traced> handle_;
};

std::string text(const char* text) { return text != nullptr ? text : "(none)"; }

}  // namespace

TEST_CASE("Each task is told of once, in order, with who submitted it, when and how it ended", "[task_trace]") {
  TracedDevice device;
  const cox::StreamId stream = cox::StreamId::allocate();
  for (int i = 0; i < 100; ++i) device->submit([](Traced&) {});
  stream.executes([&] { device->submit([](Traced&) { throw std::runtime_error("wanted"); }); });
  std::uint32_t device_thread = 0;
  device->submit_blocking([&](Traced&) { device_thread = cox::this_thread_number(); });
  device.shutdown();

  REQUIRE(records.size() == 102);
  std::uint64_t until = 0;
  for (const TaskRecord& record : records) {
    CHECK(record.device == cox::DeviceId{.type = 70, .index = 1});
    CHECK(record.stage == cox::Stage::Downstream);
    CHECK(record.client == cox::this_thread_number());
    CHECK(record.thread == device_thread);
    CHECK(record.start >= until);
    CHECK(record.end >= record.start);
    CHECK((record.submitted == 0) == !cox::stamps_are_time());
    CHECK(record.submitted <= record.start);
    CHECK(record.type != nullptr);
    until = record.end;
  }
  CHECK(records[99].outcome == Outcome::Completed);
  CHECK(records[99].stream == cox::StreamId::current());
  CHECK(records[100].outcome == Outcome::Failed);
  CHECK(records[100].stream == stream);
}

TEST_CASE("A task is told of with its label, its call site and its operation", "[task_trace]") {
  TracedDevice device;
  device->submit([](Traced&) {}, CallOptions{.label = "weights"});
  device->submit([](Traced&) {}, CallOptions{});
  device->submit([](Traced&) {
    cox::name_operation("write");
    cox::name_operation("copy");
  });
  device->submit([](Traced&) {});
  const auto line = static_cast<std::uint32_t>(__LINE__ - 7);
  device.shutdown();

  REQUIRE(records.size() == 4);
  CHECK(text(records[0].label) == "weights");
  CHECK(records[0].line == line);
  CHECK_THAT(text(records[0].file), Catch::Matchers::EndsWith("task_trace_test.cpp"));
  CHECK(text(records[1].label) == "(none)");
  CHECK(records[1].line == line + 1);
  CHECK(text(records[2].operation) == "write");  // the first counts
  CHECK(text(records[2].file) == "(none)");
  CHECK(text(records[3].operation) == "(none)");
}

TEST_CASE("A task is told of by its own type, also where it is too large for a lane", "[task_trace]") {
  TracedDevice device;
  const auto small = [](Traced&) {};
  const auto pooled = [bytes = std::array<char, 2'000>{}](Traced&) { static_cast<void>(bytes); };
  const auto large = [bytes = std::array<char, 10'000>{}](Traced&) { static_cast<void>(bytes); };
  device->submit(small);
  device->submit(pooled);
  device->submit(large);
  device.shutdown();

  const auto type_of = []<class F>(const F&) -> const std::type_info& {
    return typeid(cox::detail::PostedTask<Traced, cox::DeviceThread, F>);
  };
  REQUIRE(records.size() == 3);
  CHECK(*records[0].type == type_of(small));
  CHECK(*records[1].type == type_of(pooled));
  CHECK(*records[2].type == type_of(large));
}

TEST_CASE("What runs inside exclusive does not name the task around it", "[task_trace]") {
  TracedDevice device;
  device->exclusive([&] { device->submit_blocking([](Traced&) { cox::name_operation("read"); }); });
  device.shutdown();
  REQUIRE(records.size() == 1);
  CHECK(text(records[0].operation) == "(none)");
}

TEST_CASE("A task of another thread is told of as that thread's", "[task_trace]") {
  TracedDevice device;
  const std::uint32_t other = std::async(std::launch::async, [&] {
                                device->submit_blocking([](Traced&) {});
                                return cox::this_thread_number();
                              }).get();
  device.shutdown();
  REQUIRE(records.size() == 1);
  CHECK(records[0].client == other);
  CHECK(other != cox::this_thread_number());
}

TEST_CASE("A task that waited starts when the one before it ends, one that did not when it was submitted or later",
          "[task_trace]") {
  TracedDevice device;
  std::promise<void> entered;
  std::promise<void> gate;
  device->submit([&](Traced&) {
    entered.set_value();
    gate.get_future().wait();
  });
  entered.get_future().wait();
  device->submit([](Traced&) {});
  gate.set_value();
  device->submit_blocking([](Traced&) {});
  device->submit_blocking([](Traced&) {});
  device.shutdown();
  REQUIRE(records.size() == 4);
  if (cox::stamps_are_time()) CHECK(records[1].start == records[0].end);
  CHECK(records[3].start >= records[3].submitted);
  CHECK(records[3].start > records[2].start);
}

TEST_CASE("Nobody is told once the tracer is gone, and an operation named elsewhere is nobody's", "[task_trace]") {
  TracedDevice device;
  cox::name_operation("on a client thread");
  cox::set_task_tracer(nullptr);
  device->submit_blocking([](Traced&) { cox::name_operation("untraced"); });
  device.shutdown();
  CHECK(records.empty());
}
