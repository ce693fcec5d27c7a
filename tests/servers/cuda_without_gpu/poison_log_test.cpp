// The log of operations whose result may still turn out to be invalid, without a device.
#include <coxswain/runtime/buffer/operation_memory.hpp>
#include <coxswain/runtime/error/io_error.hpp>
#include <coxswain/runtime/memory/device_buffer.hpp>
#include <coxswain/servers/cuda/stream/poison_log.hpp>
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/failing_allocation.hpp>

#include <array>
#include <cstdint>
#include <exception>
#include <memory>
#include <source_location>
#include <stdexcept>
#include <string>
#include <vector>

using namespace cox;
using namespace cox::detail;
using namespace cox::test;

namespace {

constexpr std::array devices{DeviceId{.type = 1, .index = 7}};

struct Part final : LoggedOperation {
  std::exception_ptr error;
  int times = 0;

  std::exception_ptr record_refusal(const std::exception_ptr& refusal) noexcept override { return refusal; }
  void report_refusal(const std::exception_ptr&) noexcept override {}
  void record_rank_failure(const std::exception_ptr& failure) noexcept override {
    error = failure;
    ++times;
  }
};

/// As a rank of a collective, which fails with what its ranks have agreed on.
struct AgreeingPart final : LoggedOperation {
  explicit AgreeingPart(CollectiveId of) : collective(of) {}
  const CollectiveId collective;
  std::exception_ptr error;

  std::exception_ptr record_refusal(const std::exception_ptr& refusal) noexcept override {
    return error = PoisonLog::first_failure(collective, refusal);
  }
  void report_refusal(const std::exception_ptr&) noexcept override {}
};

struct Clock {
  std::uint64_t done;
  [[nodiscard]] std::uint64_t completed(StreamSlot) const { return done; }
};

std::exception_ptr failure(const std::string& text) { return std::make_exception_ptr(std::runtime_error(text)); }
CollectiveId operation(std::uint64_t communicator, std::uint64_t sequence) {
  return {CommunicatorNumber{communicator}, sequence};
}
std::shared_ptr<Part> add(PoisonLog& log, CollectiveId id) {
  auto part = std::make_shared<Part>();
  log.admit_part(part, {StreamSlot{1}, id.sequence}, id, StreamId{});
  return part;
}

}  // namespace

TEST_CASE("L14: a part is notified of the first failure of its operation, before or after it was added, once") {
  const auto log = PoisonLog::open(devices[0]);
  const auto first = failure("first");
  const auto second = failure("second");
  PoisonLog::fail_collective(operation(1, 1), first, devices);
  PoisonLog::fail_collective(operation(1, 1), second, devices);
  const auto late = add(*log, operation(1, 1));
  CHECK(late->times == 1);
  CHECK(late->error == first);
  const auto early = add(*log, operation(1, 2));
  PoisonLog::fail_collective(operation(1, 2), second, devices);
  PoisonLog::fail_collective(operation(1, 2), first, devices);
  CHECK(early->times == 1);
  CHECK(early->error == second);
  CHECK_FALSE(log->fail(*early, first));  // its caller knows of a failure already
  CHECK(early->times == 1);
  const auto other = add(*log, operation(2, 2));
  CHECK(other->times == 0);
  CHECK(log->fail(*other, first));
  CHECK(other->error == first);
}

TEST_CASE("L14: what the ranks fail with is agreed on, also by ranks that are many operations apart") {
  for (std::uint64_t i = 1; i <= 1000; ++i) {
    const auto first = failure("rank 0");
    REQUIRE(PoisonLog::first_failure(operation(11, i), first) == first);
  }
  for (std::uint64_t i = 1; i <= 1000; ++i) {
    const auto second = failure("rank 1");
    REQUIRE(PoisonLog::first_failure(operation(11, i), second) != second);
  }
}

// Memory that a rank has received must not have another cause than the failure that all ranks report.
TEST_CASE("L14: what is written by a collective is poisoned with the cause that its ranks have agreed on") {
  const auto log = PoisonLog::open(devices[0]);
  const auto given_back = std::make_shared<ReturnedBuffers>();
  std::vector<DeviceBuffer*> buffers;
  for (int i = 0; i < 3; ++i) buffers.push_back(new DeviceBuffer(given_back));
  const auto use = [&](std::size_t index, Access access) {
    return BufferUse{.buffer = buffers[index], .access = access, .memory = {}, .whole = true};
  };
  const auto add_using = [&](std::uint64_t sequence, std::size_t source, std::size_t destination) {
    auto part = std::make_shared<AgreeingPart>(operation(41, sequence));
    part->memory = OperationMemory(BufferUses{use(source, Access::Read), use(destination, Access::Overwrite)},
                                   std::source_location::current());
    log->admit_part(part, {StreamSlot{1}, sequence}, part->collective, StreamId{});
    return part;
  };
  const auto other = failure("an input of another rank");
  const auto agreed = std::make_exception_ptr(
      IoError(IoError::Kind::Poisoned, "another rank could not take part", std::source_location::current(), other));
  const auto own = failure("an earlier operation here");
  static_cast<void>(add_using(1, 0, 1));
  const auto second = add_using(2, 1, 2);
  const auto third = add_using(3, 2, 0);
  REQUIRE(PoisonLog::first_failure(operation(41, 2), agreed) == agreed);
  PoisonLog::fail_collective(operation(41, 1), own, devices);
  CHECK(second->error == agreed);
  CHECK(poison_cause(third->error) == other);
  CHECK(buffers[1]->failure()->cause == own);
  CHECK(buffers[2]->failure()->cause == other);
  CHECK(buffers[0]->failure()->cause == other);
  log->clear();
  for (DeviceBuffer* const each : buffers) each->drop();
}

TEST_CASE("L14: no failure of an operation is lost where there is no memory to keep it") {
  const auto log = PoisonLog::open(devices[0]);
  const auto error = failure("of another rank");
  constexpr std::uint64_t count = 500;  // more than there is room for
  allocations_until_failure = 0;
  for (std::uint64_t i = 1; i <= count; ++i) {
    PoisonLog::fail_collective(operation(21, i), error, devices);
    allocations_until_failure = 0;
  }
  allocations_until_failure = -1;
  for (std::uint64_t i = 1; i <= count; ++i) {
    const auto part = add(*log, operation(21, i));
    REQUIRE(part->times == 1);
    REQUIRE(part->error == error);
    log->trim(Clock{i});
  }
  CHECK(add(*log, operation(21, count + 1))->times == 0);
}

TEST_CASE("Failures of a communicator that adds no more parts are forgotten") {
  const auto log = PoisonLog::open(devices[0]);
  const auto error = failure("of another rank");
  const std::weak_ptr<int> kept = [&] {
    auto object = std::make_shared<int>(1);
    struct Holding : std::runtime_error {
      explicit Holding(std::shared_ptr<int> held) : std::runtime_error("holds"), object(std::move(held)) {}
      std::shared_ptr<int> object;
    };
    PoisonLog::fail_collective(operation(31, 5), std::make_exception_ptr(Holding(object)), devices);
    return object;
  }();
  CHECK_FALSE(kept.expired());
  log->forget(CommunicatorNumber{32});
  CHECK_FALSE(kept.expired());
  log->forget(CommunicatorNumber{31});
  CHECK(kept.expired());
  CHECK(add(*log, operation(31, 5))->times == 0);
}
