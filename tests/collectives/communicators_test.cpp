#include <coxswain/tests/collectives/sequencer_bench.hpp>
#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/temporary_file.hpp>

#include <coxswain/collectives/communicator/communicators.hpp>
#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>
#include <coxswain/runtime/communication/membership_epoch.hpp>
#include <coxswain/runtime/config/process_settings.hpp>

#include <nlohmann/json.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <fstream>
#include <future>
#include <latch>
#include <memory>
#include <source_location>
#include <stdexcept>
#include <thread>
#include <vector>

using namespace cox;
using namespace std::chrono_literals;
using cox::test::kind_of;
using cox::test::launch_of;
using cox::test::of_count;
using cox::test::TemporaryFile;

namespace {

constexpr DeviceId a{.type = 0, .index = 50};
constexpr DeviceId b{.type = 0, .index = 51};
constexpr DeviceId c{.type = 0, .index = 52};

std::exception_ptr why() { return std::make_exception_ptr(std::runtime_error("given up")); }

}  // namespace

TEST_CASE("A set of devices has one communicator, whatever order it is named in and however many ask at once") {
  Communicators communicators{{}};
  std::vector<std::future<std::shared_ptr<Communicator>>> asked;
  for (int i = 0; i < 8; ++i)
    asked.push_back(std::async(std::launch::async, [&, i] {
      return communicators.find_or_open(i % 2 == 0 ? CommunicationId{a, b} : CommunicationId{b, a});
    }));
  const auto first = asked.front().get();
  for (std::size_t i = 1; i < asked.size(); ++i) CHECK(asked[i].get() == first);
  CHECK(communicators.find_or_open({a, b, c}) != first);
}

TEST_CASE("Each way between two devices of a communicator has a sequence of its own") {
  Communicators communicators{{}};
  const auto communicator = communicators.find_or_open({a, b, c});
  CHECK(communicator->transfers(a, b) == communicator->transfers(a, b));
  CHECK(communicator->transfers(a, b) != communicator->transfers(b, a));
  CHECK(communicator->transfers(a, b) != communicator->transfers(a, c));
  CHECK(communicator->transfers(a, b) != communicator->number());
  CHECK(kind_of<CollectiveError>([&] { static_cast<void>(communicator->transfers(a, {0, 9})); }) ==
        CollectiveError::Kind::Validation);
}

TEST_CASE("Transfers of an aborted communicator are refused, and no lock is held while their opening calls launches") {
  Communicators communicators{{}};
  const auto aborted = communicators.find_or_open({a, b});
  aborted->abort(why());
  std::promise<void> first;
  std::promise<void> second;
  std::atomic<int> called{0};
  std::future<bool> usable;
  bool free = false;
  const auto launch = launch_of([&](const LaunchGrant&) {
    if (called++ == 0) {
      first.set_value();
      second.get_future().wait_for(60s);
      return;
    }
    usable = std::async(std::launch::async, [&] { return aborted->usable(); });
    free = usable.wait_for(10s) == std::future_status::ready;
    second.set_value();
  });
  const auto other = communicators.find_or_open({a, c});
  const auto asked = std::async(std::launch::async, [&] {
    for (const std::size_t rank : {0UL, 1UL})
      communicators.sequencer().submit(other->number(), rank, {.requests = {of_count(1)}, .launch = launch});
  });
  first.get_future().wait();  // its thread is held up before it has called the other one
  const CommunicatorNumber transfers = aborted->transfers(a, b);
  CHECK(called == 2);
  CHECK(free);
  CHECK_FALSE(usable.get());
  CHECK(communicators.sequencer().broken(transfers));
  CHECK(aborted->transfers(a, b) == transfers);
  asked.wait();
}

TEST_CASE("A communicator is renewed when it is of no use any more, and only then") {
  Communicators communicators{{}};
  const auto communicator = communicators.find_or_open({a, b});
  CHECK(communicators.renew({a, b}) == communicator);
  communicator->abort(why());
  CHECK_FALSE(communicator->usable());
  CHECK(communicators.find_or_open({a, b}) == communicator);  // nobody has asked for another one
  const auto renewed = communicators.renew({a, b});
  CHECK(renewed != communicator);
  CHECK(renewed->usable());
  CHECK_FALSE(communicator->usable());
}

TEST_CASE("A device that leaves is in no communicator that is found from then on, and ends those that it was in") {
  Communicators communicators{{}};
  const auto with = communicators.find_or_open({a, b});
  const auto without = communicators.find_or_open({a, c});
  communicators.join(b, 1);
  const auto left = communicators.leave(b, 1);
  CHECK(left == std::vector{with});
  CHECK(communicators.find_or_open({a, c}) == without);
  // L16: refused at once until the device is there again.
  using Find = std::shared_ptr<Communicator> (Communicators::*)(const CommunicationId&);
  for (const Find find : {Find{&Communicators::find_or_open}, Find{&Communicators::renew}})
    CHECK(kind_of<CollectiveError>([&] { static_cast<void>((communicators.*find)({a, b})); }) ==
          CollectiveError::Kind::Aborted);
  communicators.join(b, 2);
  CHECK(communicators.find_or_open({a, b}) != with);
  CHECK(communicators.find_or_open({a, b})->usable());
}

TEST_CASE("L16: what was called before a device left finds no communicator with it, even when it is there again") {
  Communicators communicators{{}};
  const auto without = communicators.find_or_open({a, c});
  const MembershipEpoch before = MembershipEpoch::current();
  communicators.join(b, 1);
  static_cast<void>(communicators.leave(b, 1));
  communicators.join(b, 2);
  const MembershipEpoch after = MembershipEpoch::current();
  const auto with = communicators.find_or_open({a, b});
  CHECK(communicators.find_or_open({a, b}, after, std::source_location::current()) == with);
  CHECK(communicators.find_or_open({a, c}, before, std::source_location::current()) == without);
  CHECK(kind_of<CollectiveError>([&] {
          static_cast<void>(communicators.find_or_open({a, b}, before, std::source_location::current()));
        }) == CollectiveError::Kind::Aborted);
}

TEST_CASE("L16: what was called before a communicator was replaced does not use the new one") {
  Communicators communicators{{}};
  const auto broken = communicators.find_or_open({a, b});
  const MembershipEpoch before = MembershipEpoch::current();
  broken->abort(std::make_exception_ptr(std::runtime_error("a cause")));
  CHECK(communicators.find_or_open({a, b}, before, std::source_location::current()) == broken);
  const auto renewed = communicators.renew({a, b});
  REQUIRE(renewed != broken);
  CHECK(communicators.find_or_open({a, b}, MembershipEpoch::current(), std::source_location::current()) == renewed);
  CHECK(kind_of<CollectiveError>([&] {
          static_cast<void>(communicators.find_or_open({a, b}, before, std::source_location::current()));
        }) == CollectiveError::Kind::Aborted);
  CHECK(communicators.renew({a, b}) == renewed);  // which is usable
  // Other communicators of the same call are not concerned.
  CHECK_NOTHROW(static_cast<void>(communicators.find_or_open({a, c}, before, std::source_location::current())));
}

TEST_CASE("L16: a server that was abandoned does not take leave for the one that has come after it") {
  Communicators communicators{{}};
  communicators.join(b, 6);
  const auto before = communicators.find_or_open({a, b});
  communicators.leave_abandoned(b);
  CHECK_FALSE(before->usable());
  CHECK(kind_of<CollectiveError>([&] { static_cast<void>(communicators.find_or_open({a, b})); }) ==
        CollectiveError::Kind::Aborted);
  communicators.join(b, 7);
  const auto after = communicators.find_or_open({a, b});
  CHECK(communicators.leave(b, 6).empty());
  CHECK(after->usable());
  CHECK(communicators.find_or_open({a, b}) == after);
  CHECK(communicators.leave(b, 7) == std::vector{after});
}

TEST_CASE("L16: a closing device is refused before its server is gone, which then ends its communicators") {
  Communicators communicators{{}};
  communicators.join(b, 6);
  const auto communicator = communicators.find_or_open({a, b});
  communicators.leave_closing(b, 5);  // of a server that is gone
  CHECK(communicators.find_or_open({a, b}) == communicator);
  communicators.leave_closing(b, 6);
  CHECK(kind_of<CollectiveError>([&] { static_cast<void>(communicators.find_or_open({a, b})); }) ==
        CollectiveError::Kind::Aborted);
  CHECK(communicators.leave(b, 6) == std::vector{communicator});
  communicators.join(b, 7);
  const auto after = communicators.find_or_open({a, b});
  communicators.leave_closing(b, 6);  // late
  CHECK(communicators.find_or_open({a, b}) == after);
  CHECK(communicators.leave(b, 7) == std::vector{after});
}

TEST_CASE("Groups that fail at the same time write their flight recorders one after the other") {
  const TemporaryFile file("");
  set_settings({{"collectives.dump_file", file.path()}});
  Communicators communicators{{}};
  const auto short_one = communicators.find_or_open({a, b});
  const auto long_one = communicators.find_or_open({a, c});
  for (int i = 0; i < 50; ++i)
    for (const std::size_t rank : {0UL, 1UL})
      communicators.sequencer().submit(long_one->number(), rank,
                                       {.requests = {of_count(1)}, .launch = launch_of([](const LaunchGrant&) {})});
  int whole = 0;
  constexpr int rounds = 200;
  for (int round = 0; round < rounds; ++round) {
    std::latch both(2);
    std::vector<std::jthread> threads;
    for (const auto& communicator : {short_one, long_one})
      threads.emplace_back([&both, communicator] {
        both.arrive_and_wait();
        communicator->report_failure(why());
      });
    threads.clear();
    std::ifstream in(file.path());
    if (nlohmann::json::accept(in)) ++whole;
  }
  reset_settings({"collectives.dump_file"});
  CHECK(whole == rounds);
}
