#include <coxswain/tools/cox/stress/injected_fault.hpp>
#include <coxswain/tools/cox/stress/order_auditor.hpp>

#include <coxswain/device_handle/base/stream_id.hpp>

#include <coxswain/tests/support/catch.hpp>

#include <cstdint>
#include <exception>
#include <stdexcept>

using namespace cox::stress;

namespace {

/// Two clients on one device, all on the streams that the truth knows.
class AuditBench {
 public:
  AuditBench() : truth({{0, 0}}, 2), auditor(truth, 0) {
    for (std::uint32_t client : {0U, 1U}) truth.streams(client).fill(cox::StreamId{client + 1});
  }

  void run(const Ticket& ticket) {
    const cox::StreamScope scope(truth.streams(ticket.client)[0]);
    Canary canary(truth, ticket);
    auditor.run_unattended(canary);
  }
  [[nodiscard]] std::size_t violations() { return truth.violations().all().size(); }
  [[nodiscard]] Law law() { return truth.violations().all().front().law; }

  Truth truth;
  OrderAuditor auditor;
};

Ticket ticket(std::uint16_t client, std::uint64_t operation, std::uint64_t after) {
  Ticket ticket;
  ticket.client = ticket.foreign_client = client;
  ticket.sequence = Sequence::of(operation, 0);
  ticket.after = Sequence::of(after, 0);
  return ticket;
}

}  // namespace

TEST_CASE("Closures in the order of their tickets pass, with gaps where some were cancelled") {
  AuditBench bench;
  Ticket first = ticket(0, 0, 0);
  first.after = {};
  bench.run(first);
  bench.run(ticket(0, 1, 0));
  bench.run(ticket(0, 5, 1));
  CHECK(bench.violations() == 0);
  CHECK(bench.auditor.runs() == 3);
}

TEST_CASE("A closure before the one it comes after is found, and the late one too") {
  AuditBench bench;
  bench.run(ticket(0, 2, 1));
  REQUIRE(bench.violations() == 1);
  CHECK(bench.law() == Law::Order);
  bench.run(ticket(0, 1, 0));
  CHECK(bench.violations() == 2);
}

TEST_CASE("A closure before another client's that was submitted first is found") {
  AuditBench bench;
  Ticket late = ticket(0, 0, 0);
  late.after = {};
  late.foreign_client = 1;
  late.foreign = Sequence::of(9, 0);
  bench.run(late);
  REQUIRE(bench.violations() == 1);
  CHECK(bench.law() == Law::Order);
}

TEST_CASE("An exception must come to the sink before the next closure runs") {
  AuditBench bench;
  Ticket throwing = ticket(0, 0, 0);
  throwing.after = {};
  throwing.fate = Fate::Throws;
  CHECK_THROWS_AS(bench.run(throwing), InjectedFault);

  SECTION("and when it does, nobody complains") {
    bench.auditor.on_task_error(std::make_exception_ptr(InjectedFault(0, throwing.sequence)), cox::StreamId{1});
    bench.run(ticket(0, 1, 0));
    CHECK(bench.violations() == 0);
  }
  SECTION("and when it does not, that is found") {
    bench.run(ticket(0, 1, 0));
    REQUIRE(bench.violations() == 1);
    CHECK(bench.law() == Law::Isolation);
  }
  SECTION("and another one is not taken for it") {
    bench.auditor.on_task_error(std::make_exception_ptr(std::runtime_error("other")), cox::StreamId{1});
    CHECK(bench.violations() == 1);
  }
  SECTION("under the stream of its submitter") {
    bench.auditor.on_task_error(std::make_exception_ptr(InjectedFault(0, throwing.sequence)), cox::StreamId{2});
    REQUIRE(bench.violations() == 1);
    CHECK(bench.law() == Law::Identity);
  }
}
